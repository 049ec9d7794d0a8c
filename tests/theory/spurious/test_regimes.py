import pytest
import torch

from holdfast.theory.spurious import (
    HeavyBall,
    favoured_feature,
    feature_probes,
    first_feature,
    scores,
    spurious_learning_time,
)
from tests.theory.spurious.samples import counted, pure, start

RATE = 0.1


def learned_first(beta_c, alpha_hat, core_start, spurious_start):
    """Which feature's largest projection first passes 1/2 under gradient descent from given largest starts."""
    n = 200
    aligned = round(alpha_hat * n)
    examples = counted(aligned, n - aligned, beta_c=beta_c)
    weights = start(n_filters=10)
    for direction, largest in ((examples.core, core_start), (examples.spurious, spurious_start)):
        along = weights @ direction
        weights = weights + torch.outer(along * (largest / along.max() - 1), direction)
    descent = HeavyBall(pure(weights), RATE)
    for _ in range(500):
        descent.run(examples, 1)
        core, spurious = (float((descent.filters.weights @ v).max()) for v in (examples.core, examples.spurious))
        if max(core, spurious) > 0.5:
            return "core" if core > spurious else "spurious"
    raise AssertionError("nothing was learned")


@pytest.mark.parametrize(
    ("beta_c", "beta_s", "alpha_hat", "feature"),
    [
        (0.2, 1.0, 0.98, "spurious"),
        (1.0, 0.2, 0.98, "core"),
        (1.01, 1.0, 0.98, "core"),
        (0.99, 1.0, 0.98, None),
        (0.98, 1.0, 0.98, "spurious"),
        (0.2, 1.0, 0.5, None),
        (0.2, 1.0, 0.51, "spurious"),
    ],
)
def test_the_regimes_are_the_theorems(beta_c, beta_s, alpha_hat, feature):
    assert first_feature(beta_c, beta_s, alpha_hat) == feature


@pytest.mark.parametrize(("core_start", "spurious_start"), [(0.2, 0.25), (0.2, 0.21), (0.2, 0.3)])
def test_a_sweep_over_the_core_strength_flips_the_winner_once_inside_the_band(core_start, spurious_start):
    strengths = [0.6, 0.7, 0.76, 0.8, 0.84, 0.88, 0.92, 0.96, 1.02, 1.15, 1.3]
    alpha_hat = 0.7
    winners = [learned_first(beta_c, alpha_hat, core_start, spurious_start) for beta_c in strengths]
    flip = winners.index("core")
    assert winners == ["spurious"] * flip + ["core"] * (len(winners) - flip)
    assert first_feature(strengths[flip], 1.0, alpha_hat) is None
    for strength, winner in zip(strengths, winners, strict=True):
        assert first_feature(strength, 1.0, alpha_hat) in (winner, None)


def test_inside_the_band_the_initial_draw_decides_and_outside_it_does_not():
    band, starts = 0.9, ((0.2, 0.22), (0.2, 0.5))
    assert [learned_first(band, 0.7, *drawn) for drawn in starts] == ["core", "spurious"]
    assert [favoured_feature(*drawn, band, 1.0, 0.7) for drawn in starts] == ["core", "spurious"]
    assert [learned_first(0.3, 0.7, *drawn) for drawn in starts] == ["spurious", "spurious"]


def test_plain_training_ends_with_the_attribute_as_its_prediction():
    """After a few T_0 the spurious feature is learned and the core feature is as it was; accuracy is alpha."""
    examples, weights = counted(392, 8), start(scale=0.5)
    before = feature_probes(weights, examples.core, examples.spurious)
    largest = float((weights @ examples.spurious).max())
    steps = spurious_learning_time(largest, 1.0, examples.alpha_hat, RATE)
    descent = HeavyBall(pure(weights), RATE)
    descent.run(examples, round(0.8 * steps))
    assert feature_probes(descent.filters.weights, examples.core, examples.spurious).spurious < 0.5
    descent.run(examples, round(1.2 * steps))
    after = feature_probes(descent.filters.weights, examples.core, examples.spurious)
    assert after.spurious > 1
    assert after.core == pytest.approx(before.core, rel=0.02)
    right = scores(descent.filters, examples) * examples.labels > 0
    assert torch.equal(right, examples.aligned)
