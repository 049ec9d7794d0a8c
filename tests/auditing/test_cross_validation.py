"""Cross-validation: nobody is judged by a model that learned from them."""

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.auditing.cross_validation import out_of_sample
from holdfast.auditing.wrong_labels import label_quality
from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.training import Training


def _blobs(n=150, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    inputs = 0.5 * torch.randn(n, 6, generator=generator) + 6 * torch.eye(6)[labels]
    return inputs, labels


def test_wrong_labels_are_found_by_models_that_never_saw_them():
    inputs, labels = _blobs()
    wrong = torch.arange(0, 150, 16)  # of every class
    given = labels.clone()
    given[wrong] = (given[wrong] + 1) % 3
    train = Examples.of(inputs, given)
    settings = Training(epochs=8, batch_size=10, learning_rate=0.01)
    torch.manual_seed(0)
    p = out_of_sample(lambda: nn.Linear(6, 3), train, settings, parts=3)
    np.testing.assert_allclose(p.sum(1).numpy(), 1, rtol=1e-5)
    least = label_quality(p, given).order[: len(wrong)]
    assert np.isin(least.numpy(), wrong.numpy()).mean() >= 0.85


def test_a_label_that_is_learned_by_heart_in_sample_says_nothing_out_of_sample():
    """Random labels: a network fits them, and cross-validation does not."""
    generator = torch.Generator().manual_seed(0)
    train = Examples.of(torch.randn(60, 80, generator=generator), torch.randint(2, (60,), generator=generator))
    settings = Training(epochs=15, batch_size=10, learning_rate=0.1)
    p = out_of_sample(lambda: nn.Linear(80, 2), train, settings, parts=3)
    assert 0.25 < float((p.argmax(1) == train.labels).double().mean()) < 0.75


def test_parts_must_be_at_least_two():
    inputs, labels = _blobs(30)
    with pytest.raises(ConfigError, match="parts is 1 for 30 examples"):
        out_of_sample(lambda: nn.Linear(6, 3), Examples.of(inputs, labels), Training(epochs=1), parts=1)
