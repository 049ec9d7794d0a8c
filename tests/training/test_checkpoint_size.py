"""A checkpoint is as large after many epochs as after a few: what grows with a training stands in metrics.jsonl."""

from dataclasses import replace

import pytest

from holdfast.training import Curator, Run
from tests.training import test_resume
from tests.training.test_resume import POLICIES, SETTINGS, train
from tests.training.toy import toy_examples, toy_model

#: Digits of counters and of seconds; an entry that came with every epoch would need more than this.
DIGITS = 100
EARLY, LATE = 3, 18


@pytest.fixture
def sizes(monkeypatch):
    """Sizes of the checkpoints of a run, in the order of writing."""
    found, original = [], Run.save_checkpoint

    def save(run, state, name="last"):
        original(run, state, name)
        found.append((run.path / "checkpoints" / f"{name}.safetensors").stat().st_size)

    monkeypatch.setattr(Run, "save_checkpoint", save)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_a_checkpoint_does_not_grow_with_the_epochs(name, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(test_resume, "SETTINGS", replace(SETTINGS, epochs=LATE, checkpoint_seconds=1e9))
    train(POLICIES[name](), Run.create(tmp_path / "run", {}))
    assert len(sizes) >= LATE
    assert max(sizes[EARLY:]) <= sizes[EARLY - 1] + DIGITS, sizes


@pytest.mark.parametrize("name", ["crest", "epic >> crest", "pde"])
def test_nor_does_the_state_of_a_curator_in_a_loop_of_ones_own(name):
    curator, model, lengths = Curator(toy_examples(), POLICIES[name](), batch_size=7), toy_model(), []
    for _ in curator.epochs(LATE, model):
        for _ in curator:
            curator.end_step(model)
        lengths.append(size(curator.state_dict()))
    assert max(lengths[EARLY:]) <= lengths[EARLY - 1]


def size(state):
    """How many plain values and numbers in tensors a state has."""
    if isinstance(state, dict):
        return sum(map(size, state.values()))
    if isinstance(state, (list, tuple)):
        return sum(map(size, state))
    return state.numel() if hasattr(state, "numel") else 1
