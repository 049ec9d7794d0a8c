"""A2 and A11: recording changes nothing, points are what their checkpoints give, and steps are as many as promised."""

import functools
import operator
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.errors import CheckpointError, ConfigError, DataError
from holdfast.finetuning import FineTuningSettings, TrajectoryRecorder, fine_tune
from holdfast.finetuning.language_models.fine_tuning import Progress
from holdfast.finetuning.language_models.losses import trajectory_point
from holdfast.training.state import load_state
from tests.finetuning.small import instructions, language, tokens_of, weights_of

DATA = instructions()
QUICK = FineTuningSettings(epochs=2, batch_size=10, learning_rate=1e-2)


def losses_of(settings: FineTuningSettings, **options: object) -> tuple[list[float], np.ndarray]:
    found, losses = language(DATA), list[float]()
    fine_tune(
        found.model,
        tokens_of(DATA, found),
        settings,
        progress=lambda told: losses.append(told.loss) if told.doing == "training" else None,  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )
    return losses, weights_of(found.model)


def test_training_learns() -> None:
    losses, _ = losses_of(FineTuningSettings(epochs=40, batch_size=8, learning_rate=1e-2))
    assert losses[-1] < 0.3 * losses[0]


def test_recording_changes_nothing(tmp_path: Path) -> None:
    model = language(DATA)
    recorder = TrajectoryRecorder(tmp_path, tokens_of(DATA, model), every=2)
    plain, without = losses_of(QUICK)
    recorded, with_it = losses_of(QUICK, recorder=recorder)
    assert plain == recorded
    assert np.array_equal(without, with_it)
    assert recorder.trajectories().steps == (2, 4, 6)


def test_a_point_is_what_its_checkpoint_gives(tmp_path: Path) -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    recorder = TrajectoryRecorder(tmp_path / "points", tokens, every=3)
    fine_tune(model.model, tokens, QUICK, recorder=recorder, checkpoint=tmp_path / "last.safetensors")
    state = load_state(tmp_path / "last.safetensors")
    assert state["step"] == 6
    fresh = language(DATA).model
    fresh.load_state_dict(state["weights"], strict=False)
    assert np.array_equal(recorder.trajectories().losses[:, -1], trajectory_point(fresh, tokens))


def test_the_size_of_a_forward_pass_changes_only_rounding() -> None:
    few, one = (
        losses_of(QUICK)[1],
        losses_of(FineTuningSettings(epochs=2, batch_size=10, learning_rate=1e-2, most_tokens=1))[1],
    )
    np.testing.assert_allclose(few, one, atol=2e-4)


def test_the_loss_is_the_mean_over_the_tokens_of_a_step() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    seen = list[Progress]()
    batch = tokens.batch(range(24))
    with torch.no_grad():
        expected = float(
            model.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels).loss
        )
    fine_tune(model.model, tokens, FineTuningSettings(steps=1, batch_size=24), progress=seen.append)
    assert seen[0].loss == pytest.approx(expected, rel=1e-5)


def test_steps_follow_epochs_or_are_given() -> None:
    assert FineTuningSettings(batch_size=128).steps_for(262_040) == 6144
    assert FineTuningSettings(batch_size=128).steps_for(131_020) == 3 * 1024
    full = FineTuningSettings().steps_for(262_040)
    assert all(FineTuningSettings(steps=full).steps_for(budget) == full for budget in (30_000, 50_000, 100_000))


def test_every_epoch_sees_every_example_once() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    fed = list[list[int]]()
    original = type(tokens).batches

    class Watched(type(tokens)):  # type: ignore[misc]
        def batches(self, positions: np.ndarray, most_tokens: int, **share: tuple[int, int]) -> list[np.ndarray]:
            fed.append(positions.tolist())
            return original(self, positions, most_tokens, **share)

    watched = Watched(tokens.ids, tokens.ends, tokens.learned, tokens.pad)
    fine_tune(model.model, watched, QUICK)
    assert [len(batch) for batch in fed] == [10, 10, 4] * 2
    first, second = functools.reduce(operator.iadd, fed[:3], []), functools.reduce(operator.iadd, fed[3:], [])
    assert sorted(first) == sorted(second) == list(range(24))
    assert first != second


def test_the_rate_is_that_of_transformers() -> None:
    from transformers import get_cosine_schedule_with_warmup

    settings, total = FineTuningSettings(learning_rate=0.5, warmup=0.1), 37
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = get_cosine_schedule_with_warmup(optimizer, 4, total)
    for step in range(total):
        assert settings.rate(step, total) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_a_killed_run_continues_to_the_bit(tmp_path: Path) -> None:
    data = DATA
    straight = language(data)
    tokens = tokens_of(data, straight)
    straight.model.gpt_neox.emb_dropout.p = 0.2  # type: ignore[union-attr,assignment]
    whole = TrajectoryRecorder(tmp_path / "whole", tokens, every=2)
    fine_tune(straight.model, tokens, QUICK, recorder=whole)

    class KilledError(Exception):
        pass

    def kill(told: Progress) -> None:
        if told.doing == "recording" and len(recorder.points()) == 1:
            raise KilledError

    checkpoint = tmp_path / "last.safetensors"
    recorder = TrajectoryRecorder(tmp_path / "points", tokens, every=2)
    for attempt in range(2):
        again = language(data)
        again.model.gpt_neox.emb_dropout.p = 0.2  # type: ignore[union-attr,assignment]
        try:
            fine_tune(again.model, tokens, QUICK, recorder=recorder, checkpoint=checkpoint, progress=kill)
        except KilledError:
            assert attempt == 0
            assert load_state(checkpoint)["step"] == 2
            recorder = TrajectoryRecorder(tmp_path / "points", tokens, every=2)
            kill = lambda told: None  # noqa: E731
    assert np.array_equal(weights_of(straight.model), weights_of(again.model))
    assert np.array_equal(whole.trajectories().losses, recorder.trajectories().losses)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    found, checkpoint = language(DATA), tmp_path / "last.safetensors"
    fine_tune(found.model, tokens_of(DATA, found), QUICK, checkpoint=checkpoint)
    longer = FineTuningSettings(epochs=3, batch_size=10)
    with pytest.raises(CheckpointError, match="6 steps instead of 9"):
        fine_tune(found.model, tokens_of(DATA, found), longer, checkpoint=checkpoint)
    other = language(DATA, width=8)
    with pytest.raises(CheckpointError, match="another model"):
        fine_tune(other.model, tokens_of(DATA, other), QUICK, checkpoint=checkpoint)


def test_a_run_that_diverges_says_so() -> None:
    model = language(DATA)
    with pytest.raises(DataError, match="lower the learning rate"):
        fine_tune(model.model, tokens_of(DATA, model), FineTuningSettings(steps=30, learning_rate=1e30, warmup=0))


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"steps": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"warmup": 1.0}, {"max_norm": -1}]
)
def test_settings_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="give"):
        FineTuningSettings(**wrong)  # type: ignore[arg-type]
