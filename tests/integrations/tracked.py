"""One short run of `fit` with a tracker, and what it must have shown."""

import torch

from holdfast.data.examples import Examples, Splits
from holdfast.training import Run, Training, fit
from tests.integrations.conftest import Resize, make_model

CONFIG = {"data": "toy", "training": {"epochs": 2, "optimizer": "sgd"}, "policies": ["resize"]}


def make_splits() -> Splits:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(64, 4, generator=generator)
    labels, attributes = (inputs.sum(1) > 0).long(), (inputs[:, 0] > 0).long()
    whole = Examples.of(inputs, labels, attributes=attributes)
    return Splits("toy", whole, whole, whole)


def run_fit(run: Run, listeners, epochs: int = 2):
    settings = Training(epochs=epochs, batch_size=8, seed=1)
    return fit(make_model(), make_splits(), Resize((16, 32)), settings, run=run, listeners=listeners)
