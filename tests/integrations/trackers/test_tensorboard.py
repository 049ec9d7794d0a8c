import pytest

from holdfast.integrations.trackers.tensorboard import TensorBoard
from holdfast.integrations.trackers.tracker import trackers
from holdfast.training.events import Event
from holdfast.training.run import Run
from tests.integrations.tracked import CONFIG, run_fit

pytest.importorskip("tensorboard")
accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder):
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: {point.step: point.value for point in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_the_event_file_has_what_the_run_says(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    result = run_fit(run, trackers(["tensorboard"], run))
    written = read(run.path / "tensorboard")
    first, second = result.history
    assert written["plan/active"] == {0: 16.0, 2: 32.0}
    assert written["train/loss"] == pytest.approx({2: first["loss"], 6: second["loss"]})
    assert written["train/learning_rate"] == pytest.approx({2: 0.01, 6: 0.01})
    assert written["validation/score"] == pytest.approx({2: first["score"], 6: second["score"]})
    for place, name in enumerate(["y0_a0", "y0_a1", "y1_a0", "y1_a1"]):
        shown = [epoch["validation"]["groups"][place]["accuracy"] for epoch in result.history]
        assert list(written[f"validation/group/{name}"].values()) == pytest.approx(shown)
    assert written["test/worst_group"] == pytest.approx({6: result.test.worst_accuracy})


def test_a_run_that_continues_hides_what_came_after_its_checkpoint(tmp_path):
    first = TensorBoard(tmp_path)
    for step in (0, 5, 10):
        first(Event("plan", 0, step, {"active": step + 1, "of": 50}))
    again = TensorBoard(tmp_path)
    for step in (5, 10):
        again(Event("plan", 0, step, {"active": step + 2, "of": 50}))
    assert read(tmp_path)["plan/active"] == {0: 1.0, 5: 7.0, 10: 12.0}


def test_nothing_is_made_before_there_is_something_to_write(tmp_path):
    listener = TensorBoard(tmp_path / "tensorboard")
    listener(Event("start", 0, 0, {"epochs": 2}))
    assert not (tmp_path / "tensorboard").exists()
