import pytest
import torch
import torch.nn.functional as F

from holdfast.theory.spurious import (
    HeavyBall,
    early_core_growth,
    early_spurious_growth,
    gradient,
    next_projections,
    projections,
    slopes,
)
from tests.theory.spurious.samples import counted, network, pure, sample, start

RATE = 0.1


def test_the_recursions_follow_a_framework_step_by_step_through_the_whole_of_learning():
    examples = sample(n=300, dtype=torch.float32).with_clean_noise()
    model = network(pure(start().float()))
    optimizer = torch.optim.SGD(model.filters.parameters(), RATE)
    target, inputs = (examples.labels > 0).long(), examples.inputs
    start_probe = (model.filters.weight @ examples.spurious).max().item()
    worst = 0.0
    for _ in range(150):
        expected = next_projections(model.filters.weight.detach(), examples, RATE)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), target).backward()
        optimizer.step()
        found = projections(model.filters.weight.detach(), examples)
        worst = max(worst, *(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)))
    assert worst < 5e-7
    assert float(found.spurious.max()) > 5 * start_probe


def test_noise_along_the_features_breaks_the_recursions():
    examples, weights = sample(n=300), start()
    stepped = weights - RATE * gradient(pure(weights), examples).weights
    expected = next_projections(weights, examples, RATE)
    assert float((projections(stepped, examples).core - expected.core).abs().max()) > 1e-6


def trajectory(examples, weights, steps):
    """Projections before every step and after the last, (steps + 1, filters) each."""
    descent = HeavyBall(pure(weights), RATE)
    found = [projections(weights, examples)]
    for _ in range(steps):
        descent.run(examples, 1)
        found.append(projections(descent.filters.weights, examples))
    return torch.stack([p.core for p in found]), torch.stack([p.spurious for p in found])


def test_projections_never_decrease_and_negative_ones_shrink_towards_zero():
    examples = counted(196, 4)
    core, spurious = trajectory(examples, start(), 300)
    assert bool((core.diff(dim=0) >= 0).all())
    assert float(spurious[-1].max()) > 1
    early = spurious[:50]
    assert bool((early.diff(dim=0) >= 0).all())
    for path in (core, early):
        grown = path[-1].abs() > path[0].abs()
        assert torch.equal(grown, path[0] > 0)
        assert bool((path[-1][path[0] < 0] < 0).all())


def test_increments_at_a_tiny_start_are_the_predicted_multiples_of_the_squared_projection():
    examples, weights = counted(392, 8), start(scale=0.1)
    core, spurious = trajectory(examples, weights, 1)
    growth = early_spurious_growth(1.0, examples.alpha_hat, RATE).lower
    torch.testing.assert_close(spurious[1] - spurious[0], growth * spurious[0].square(), rtol=1e-4, atol=0)
    growth = early_core_growth(0.2, examples.alpha_hat, RATE).upper
    torch.testing.assert_close(core[1] - core[0], growth * core[0].square(), rtol=1e-4, atol=0)


def test_increments_keep_within_the_bounds_while_slopes_are_near_a_half():
    """With every l_i within delta of 1/2, both increments are within 2 delta of their value at the start."""
    examples, weights = counted(180, 20), start(seed=1)
    bounds_core = early_core_growth(0.2, examples.alpha_hat, RATE)
    bounds_spurious = early_spurious_growth(1.0, examples.alpha_hat, RATE)
    descent, n_steps = HeavyBall(pure(weights), RATE), 0
    while True:
        slope = slopes(descent.filters, examples)
        delta = float((slope - 0.5).abs().max())
        if delta > 0.1:
            break
        before = projections(descent.filters.weights, examples)
        descent.run(examples, 1)
        n_steps += 1
        after = projections(descent.filters.weights, examples)
        core = (after.core - before.core) / before.core.square()
        spurious = (after.spurious - before.spurious) / before.spurious.square()
        whole = bounds_core.upper * (1 + 1e-6)
        assert float(core.min()) >= bounds_core.lower - 2 * delta * whole
        assert float(core.max()) <= whole + 2 * delta * whole
        whole = 1.5 * RATE * (1 + 1e-6)
        assert float(spurious.min()) >= bounds_spurious.lower - 2 * delta * whole
        assert float(spurious.max()) <= bounds_spurious.upper + 2 * delta * whole
    assert n_steps > 10


def test_equal_halves_leave_the_spurious_feature_without_growth():
    assert early_spurious_growth(1.0, 0.5).lower == 0
    assert early_core_growth(0.2, 0.5).lower == pytest.approx(0.5 * early_core_growth(0.2, 0.5).upper)
