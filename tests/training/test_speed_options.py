"""Precision, accumulation and worker processes with every method: the same training, or a sentence."""

import dataclasses

import pytest
import torch
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.data.inputs import LazyInputs, TensorInputs
from holdfast.errors import HoldfastError
from holdfast.methods import METHODS, build_method
from holdfast.training import Training, fit
from tests.training.toy import ToyNet, toy_examples

#: Options with which a method has something to do on sixty examples.
OPTIONS = {
    "spare": {"infer_epoch": 1, "k": 1},
    "jtt": {"infer_epoch": 1, "lambda_up": 3},
    "eiil": {"infer_epoch": 1},
    "pgi": {"infer_epoch": 1},
    "george": {"infer_epoch": 1},
    "cnc": {"infer_epoch": 1, "set_size": 5},
    "ssa": {"iterations": 20, "check_every": 10},
    "pde": {"first_expansion": 1, "every": 1, "added": 4},
    "crest": {"subset": 20},
    "craig": {"fraction": 0.5},
    "gradmatch": {"fraction": 0.5},
    "glister": {"fraction": 0.5, "every": 2},
    "el2n": {"fraction": 0.5, "score_epochs": 1},
    "grand": {"fraction": 0.5, "score_epochs": 1},
    "forgetting": {"fraction": 0.5, "score_epochs": 2},
    "epic": {"fraction": 0.4, "start": 1, "every": 1},
    "deep-knn": {"filter_epochs": 1, "expected": 0.1},
    "spectral-signatures": {"filter_epochs": 1, "expected": 0.03},
    "activation-clustering": {"filter_epochs": 1},
    "highest-loss": {"start": 1, "every": 1, "threshold": 0.9},
    "lowest-confidence": {"start": 1, "every": 1, "threshold": 0.55},
    "dp-sgd": {"noise": 0.1},
    "adversarial-poisoning": {"steps": 1},
}


class PlainNet(nn.Module):
    """Without batch norm, which normalises each part by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.Tanh())
        self.head = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def new_model(kind: type[nn.Module] = PlainNet) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind()


def parts(images: bool, dtype: torch.dtype = torch.float32, *, lazy: bool = False) -> Splits:
    def part(n: int, seed: int) -> Examples:
        examples = toy_examples(n, seed, 1000 * seed)
        values = examples.inputs.gather(torch.arange(n)).to(dtype)
        values = values.view(-1, 1, 2, 3) if images else values
        inputs = LazyInputs(values.__getitem__, n) if lazy else TensorInputs(values)
        return dataclasses.replace(examples, inputs=inputs)

    return Splits("toy", part(60, 0), part(40, 1), part(40, 2))


def trained(name: str, settings: Training, splits: Splits, kind: type[nn.Module] = PlainNet) -> nn.Module:
    model = new_model(kind).to(splits.train.inputs.gather(torch.arange(1)).dtype)
    fit(model, splits, build_method(name, {name: OPTIONS.get(name, {})}), settings)
    return model


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
@pytest.mark.parametrize("name", METHODS)
def test_accumulated_steps_are_those_of_the_whole_batch(name):
    """53 of 60 draws are seven and a half steps of 8: the last is uneven, and so are its parts."""
    splits = parts(name == "adversarial-poisoning", torch.float64)
    common = {"epochs": 2, "learning_rate": 0.05, "epoch_size": 53, "clip_norm": 1.0, "select_by": "accuracy"}
    whole = trained(name, Training(batch_size=8, **common), splits)
    accumulated = trained(name, Training(batch_size=3, accumulate=3, **common), splits)
    exact = trained(name, Training(batch_size=4, accumulate=2, **common), splits)
    weights = [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in (whole, exact, accumulated)]
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-6)
    assert not torch.equal(weights[2], weights[0]), "steps of 9 are other steps, so that the equality can fail"


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_in_bf16_with_accumulated_steps_and_workers(name):
    splits = parts(name == "adversarial-poisoning", lazy=True)
    settings = Training(epochs=2, batch_size=8, learning_rate=0.05, precision="bf16", accumulate=2, workers=2)
    kind = PlainNet if name == "adversarial-poisoning" else ToyNet
    try:
        model = trained(name, settings, splits, kind)
    except HoldfastError as error:
        pytest.fail(f"{name} refuses: {error}")
    assert all(parameter.dtype == torch.float32 and parameter.isfinite().all() for parameter in model.parameters())
