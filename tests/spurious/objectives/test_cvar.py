import math

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.spurious.objectives.cvar import CvarDRO, CvarLoss, worst_share_mean
from holdfast.training import Batch, Curator, Forward, Training, fit
from tests.training.policies import LossWeights
from tests.training.toy import toy_examples, toy_model, toy_splits


def random_losses(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed))


def slow(losses: list[float], alpha: float) -> float:
    """p_i = 1 / (alpha B) on the worst floor(alpha B), what is left of the mass on the next."""
    left, total = 1.0, 0.0
    for loss in sorted(losses, reverse=True):
        share = min(left, 1 / (alpha * len(losses)))
        total, left = total + share * loss, left - share
    return total


@pytest.mark.parametrize("n", [1, 2, 7, 32, 49])
def test_a_share_of_one_is_the_mean_and_of_one_example_the_maximum(n):
    losses = random_losses(n)
    assert float(worst_share_mean(losses, 1.0)) == pytest.approx(float(losses.mean()))
    assert float(worst_share_mean(losses, 1 / n)) == float(losses.max())
    assert float(worst_share_mean(losses, 0.5 / n)) == float(losses.max())


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.33, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("n", [3, 10, 30, 32])
def test_the_share_equals_handing_out_the_mass_from_the_worst_down(alpha, n):
    losses = random_losses(n, n)
    assert float(worst_share_mean(losses, alpha)) == pytest.approx(slow(losses.tolist(), alpha), rel=1e-5)


def test_the_gradient_reaches_the_worst_examples_only_and_sums_to_one():
    losses = random_losses(10).requires_grad_()
    worst_share_mean(losses, 0.25).backward()
    assert int((losses.grad > 0).sum()) == math.ceil(2.5)
    assert sorted(losses.grad.tolist())[-3:] == pytest.approx([0.2, 0.4, 0.4])


def test_the_objective_takes_the_weights_of_the_examples_into_account():
    examples, model = toy_examples(20), toy_model().eval()
    curator = Curator(examples, LossWeights(), batch_size=20)
    curator.start()
    batch: Batch = next(iter(curator))
    with torch.no_grad():
        forward = Forward(model, batch)
        expected = (batch.weights * forward.losses).mean()
        share = CvarLoss(1.0)(forward)
    assert float(share) == pytest.approx(float(expected))


def test_with_a_share_of_one_training_is_plain_training():
    settings = Training(epochs=3, batch_size=8, learning_rate=0.05)
    plain = [record["loss"] for record in fit(toy_model(), toy_splits(), None, settings).history]
    cvar = [record["loss"] for record in fit(toy_model(), toy_splits(), CvarDRO(1.0), settings).history]
    worst = [record["loss"] for record in fit(toy_model(), toy_splits(), CvarDRO(0.1), settings).history]
    assert cvar == pytest.approx(plain, rel=1e-4)
    assert all(w > p for w, p in zip(worst, plain, strict=True))


@pytest.mark.parametrize("alpha", [0, -0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(alpha):
    with pytest.raises(ConfigError, match="alpha of cvar is"):
        CvarDRO(alpha)
