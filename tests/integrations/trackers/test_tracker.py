import sys

import pytest

from holdfast.errors import ConfigError, HoldfastWarning, MissingDependencyError
from holdfast.integrations.trackers.scalars import safe_names, scalars
from holdfast.integrations.trackers.tracker import Guarded, trackers
from holdfast.training.events import Event
from holdfast.training.run import Run

PLAN = Event("plan", 0, 0, {"active": 12, "of": 50})


def test_an_unknown_tracker_is_answered_with_the_nearest(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match=r"no tracker 'tensorbord'; did you mean 'tensorboard'\?"):
        trackers(["tensorbord"], run)
    assert trackers([], run) == []


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_a_missing_package_is_named_with_its_extra_at_the_first_event(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    (listener,) = trackers([name], Run.create(tmp_path / "run", {}))
    with pytest.raises(MissingDependencyError, match=rf"holdfast\[{name}\]"):
        listener(PLAN)


def test_a_tracker_that_never_worked_stops_the_run_with_a_sentence():
    def unreachable(event):
        raise ConnectionError("connection refused")

    with pytest.raises(ConfigError, match=r"tracker mlflow can't be used \(connection refused\)"):
        Guarded("mlflow", unreachable)(PLAN)


def test_a_tracker_that_fails_later_is_told_once_and_left_out():
    calls = []

    def flaky(event):
        calls.append(event)
        if len(calls) == 2:
            raise TimeoutError

    listener = Guarded("mlflow", flaky)
    listener(PLAN)
    with pytest.warns(
        HoldfastWarning, match=r"mlflow failed in epoch 0 \(TimeoutError\).*metrics.jsonl has everything"
    ):
        listener(PLAN)
    listener(PLAN)
    assert len(calls) == 2


def test_groups_keep_different_names():
    assert safe_names(["a/b", "a b", "a_b", "a/b"]) == ["a_b", "a b", "a_b.2", "a_b.3"]
    assert len(safe_names(["x" * 400])[0]) <= 120


def test_a_group_without_examples_has_no_scalar():
    report = {
        "groups": [{"name": "y0/a0", "accuracy": 0.5}, {"name": "y0/a1", "accuracy": None}],
        "averages": {"accuracy": 0.5, "train_mix": None},
        "worst_accuracy": 0.5,
    }
    found = scalars(Event("epoch", 0, 4, {"loss": 1.5, "score": 0.5, "validation": report}))
    assert found == {
        "train/loss": 1.5,
        "validation/score": 0.5,
        "validation/accuracy": 0.5,
        "validation/worst_group": 0.5,
        "validation/group/y0_a0": 0.5,
    }
    assert scalars(Event("step", 0, 4, {"steps_left": 3})) == {}
