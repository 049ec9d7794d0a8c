from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.finetuning import Trajectories, TrajectoryRecorder
from tests.finetuning.small import instructions, language, tokens_of

DATA = instructions()


def trajectories(points: int = 12) -> Trajectories:
    losses = np.arange(3 * points, dtype=np.float32).reshape(3, points)
    steps = tuple(range(500, 500 * (points + 1), 500))
    return Trajectories(np.array([7, 3, 5]), losses, steps, np.array([False, True, False]), {"data": "ab12"})


def test_files_are_keyed_by_id(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    given = trajectories(3)
    given.save(tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names == ["id", "undefined", "loss_500", "loss_1000", "loss_1500"]
    assert table["id"].to_pylist() == [7, 3, 5]
    again = Trajectories.load(tmp_path / "t.parquet")
    assert again.steps == given.steps
    assert again.ids.tolist() == [3, 5, 7]
    assert np.array_equal(again.losses, given.losses[[1, 2, 0]])
    assert again.undefined.tolist() == [True, False, False]
    assert again.key == {"data": "ab12"}
    assert again.at([0, 2]).key == {"data": "ab12"}


def test_points_are_in_the_order_of_their_steps_whatever_the_order_of_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"loss_1000": [2.0], "id": [4], "loss_500": [1.0]}), tmp_path / "t.parquet")
    found = Trajectories.load(tmp_path / "t.parquet")
    assert found.steps == (500, 1000)
    assert found.losses.tolist() == [[1.0, 2.0]]
    assert found.undefined.tolist() == [False]
    assert found.key == {}


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("loss_final", [1.0, 2.0], "a column 'loss_final', which names no step"),
        ("loss_1", ["1.0", "2.0"], "the column 'loss_1' of .* doesn't hold numbers"),
        ("id", ["a", "b"], "the column 'id' of .* doesn't hold whole numbers"),
        ("id", [0, None], "the column 'id' of .* doesn't hold whole numbers"),
    ],
)
def test_columns_that_are_no_trajectories_are_named(
    tmp_path: Path, column: str, values: list[object], message: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [0, 1], "loss_1": [1.0, 2.0], column: values}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        Trajectories.load(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("count", "steps"), [(4, (1500, 3000, 4500, 6000)), (6, (1000, 2000, 3000, 4000, 5000, 6000)), (12, None)]
)
def test_thinned_at_equal_strides(count: int, steps: tuple[int, ...] | None) -> None:
    assert trajectories().thinned(count).steps == (steps or trajectories().steps)


def test_eight_of_twelve_points_are_neighbours() -> None:
    assert trajectories().thinned(8).steps == tuple(range(2500, 6500, 500))


def test_dense_points_of_a_phase() -> None:
    given = trajectories()
    assert given.dense(4, "early").steps == (500, 1000, 1500, 2000)
    assert given.dense(4, "middle").steps == (2500, 3000, 3500, 4000)
    assert given.dense(4, "late").losses.tolist() == given.losses[:, 8:].tolist()
    with pytest.raises(ConfigError, match="no part 'noon'"):
        given.dense(4, "noon")
    with pytest.raises(ConfigError, match="13 points"):
        given.thinned(13)


def test_a_file_that_is_no_trajectory(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="can't be read as parquet"):
        Trajectories.load(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="can't be read"):
        Trajectories.load(tmp_path / "missing.parquet")


def test_points_of_another_run_are_refused(tmp_path: Path) -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    first = TrajectoryRecorder(tmp_path, tokens, every=1, key={"proxy": "a", "data": "x"})
    assert first.record(model.model, 1)
    with pytest.raises(ConfigError, match="from a run with another proxy"):
        TrajectoryRecorder(tmp_path, tokens, every=1, key={"proxy": "b", "data": "x"})
    again = TrajectoryRecorder(tmp_path, tokens, every=1, key={"proxy": "a", "data": "x"})
    assert not again.record(model.model, 1)
    assert again.trajectories().steps == (1,)


def test_training_and_recording_are_timed_over_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A18: a point takes 5 here and the training before it 2; what is trained again does not count."""
    now = [0.0]
    monkeypatch.setattr("holdfast.finetuning.trajectories.time.perf_counter", lambda: now[0])
    model = language(DATA)
    tokens = tokens_of(DATA, model)

    def train(recorder: TrajectoryRecorder, steps: range) -> None:
        for step in steps:
            now[0] += 1
            recorder.record(model.model, step, slow)

    def slow(done: int, of: int) -> None:
        now[0] += 5 if done == of else 0

    train(TrajectoryRecorder(tmp_path, tokens, every=2), range(1, 4))
    now[0] += 1000
    recorder = TrajectoryRecorder(tmp_path, tokens, every=2)
    train(recorder, range(1, 6))
    seconds = recorder.trajectories().seconds
    assert seconds is not None
    assert (seconds.training, seconds.recording) == (4, 10)


def test_nothing_recorded_yet(tmp_path: Path) -> None:
    recorder = TrajectoryRecorder(tmp_path, tokens_of(DATA, language(DATA)), every=500)
    with pytest.raises(CheckpointError, match="at least 500 steps"):
        recorder.trajectories()
    with pytest.raises(ConfigError, match="every 0 steps"):
        TrajectoryRecorder(tmp_path, recorder.tokens, every=0)


def test_losses_that_are_no_numbers_are_never_written(tmp_path: Path) -> None:
    model = language(DATA)
    recorder = TrajectoryRecorder(tmp_path, tokens_of(DATA, model), every=1)
    with torch.no_grad():
        next(iter(model.model.parameters())).fill_(torch.nan)
    with pytest.raises(DataError, match="diverged"):
        recorder.record(model.model, 1)
    assert not recorder.points()


def test_the_last_file_in_the_folder_is_not_the_last_step(tmp_path: Path) -> None:
    """Public code reads checkpoints in the order of the file system; here 1000 comes after 500."""
    model = language(DATA)
    recorder = TrajectoryRecorder(tmp_path, tokens_of(DATA, model), every=500)
    recorder.record(model.model, 1000)
    recorder.record(model.model, 500)
    assert recorder.trajectories().steps == (500, 1000)
