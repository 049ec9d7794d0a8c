"""Data that leaves nothing to choose from: every method gives a result or a sentence, never a traceback."""

import math

import pytest
import torch
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.errors import HoldfastError
from holdfast.methods import METHODS, build_method
from holdfast.training import Training, fit

#: A warning is a sentence, beside a result.
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")

#: So that every method does what it is for within two epochs.
OPTIONS = {
    "activation-clustering": {"filter_epochs": 1},
    "crest": {"batch_size": 2, "subset": 4},
    "deep-knn": {"filter_epochs": 1, "expected": 0.1},
    "eiil": {"infer_epoch": 1},
    "el2n": {"score_epochs": 1},
    "epic": {"fraction": 0.4, "start": 1, "every": 1},
    "forgetting": {"score_epochs": 1},
    "george": {"infer_epoch": 1},
    "grand": {"score_epochs": 1},
    "highest-loss": {"start": 1, "every": 1},
    "jtt": {"infer_epoch": 1},
    "lowest-confidence": {"start": 1, "every": 1},
    "pde": {"first_expansion": 1, "every": 1, "added": 2},
    "spare": {"infer_epoch": 1},
    "ssa": {"iterations": 20, "check_every": 10},
    "spectral-signatures": {"filter_epochs": 1, "expected": 0.03},
}


def random_inputs(labels):
    return torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(0)) + torch.tensor(labels)[:, None]


#: Labels, how many classes there are by name, how many outputs the model has, and whether all inputs are equal.
DATA = {
    "one example": ([0], 1, 1, False),
    "one example of two classes": ([1], 2, 2, False),
    "two examples of one class": ([0, 0], 1, 2, False),
    "one class": ([0] * 9, 1, 1, False),
    "one class of two": ([1] * 9, 2, 2, False),
    "all inputs equal": ([0, 1] * 5, 2, 2, True),
    "all inputs and labels equal": ([1] * 9, 2, 2, True),
    "a class with one example": ([0] * 8 + [1], 2, 2, False),
    "a class each": ([0, 1, 2, 3, 4], 5, 5, False),
    "a class without examples": ([0, 2] * 5, 3, 3, False),
    "fewer outputs than classes": ([0, 1, 2] * 4, 3, 2, False),
    "one output for three classes": ([0, 1, 2] * 4, 3, 1, False),
}
#: Those that are tried with batch norm too, which can't learn from one example.
NORMALISED = ("one example of two classes", "two examples of one class", "a class each")


def degenerate(name: str) -> tuple[Splits, int]:
    labels, classes, outputs, equal = DATA[name]
    inputs = torch.ones(len(labels), 3) if equal else random_inputs(labels)
    part = Examples.of(
        inputs,
        torch.tensor(labels),
        attributes=torch.arange(len(labels)) // 2 % 2,
        class_names=[f"c{label}" for label in range(classes)],
        attribute_names=["a", "b"],
    )
    return Splits(name, part, part, part), outputs


def network(outputs: int, *, normalised: bool) -> nn.Module:
    torch.manual_seed(0)
    between = nn.BatchNorm1d(4) if normalised else nn.ReLU()
    return nn.Sequential(nn.Linear(3, 4), between, nn.Linear(4, outputs))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", DATA)
def test_a_method_gives_a_result_or_a_sentence(data, method):
    for normalised in (False, True) if data in NORMALISED else (False,):
        splits, outputs = degenerate(data)
        settings = Training(epochs=2, batch_size=4, learning_rate=0.01)
        try:
            policy = build_method(method, {method: OPTIONS.get(method, {})})
            result = fit(network(outputs, normalised=normalised), splits, policy, settings)
        except HoldfastError as error:
            assert str(error).strip() and "\n" not in str(error)
        else:
            assert 0 <= result.test.worst_accuracy <= 1
            assert all(math.isfinite(record["loss"]) for record in result.history)


@pytest.mark.parametrize("method", ["erm", "spare", "jtt", "crest", "epic", "group-dro"])
def test_a_batch_may_be_larger_than_the_set(method):
    splits, outputs = degenerate("a class each")
    policy = build_method(method, {method: OPTIONS.get(method, {})})
    try:
        fit(network(outputs, normalised=True), splits, policy, Training(epochs=2, batch_size=10_000))
    except HoldfastError as error:
        assert str(error).strip()
