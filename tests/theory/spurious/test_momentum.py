import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.theory.spurious import (
    HeavyBall,
    average_step,
    buffer_alignment,
    gradient,
    heavy_ball_rate,
    heavy_ball_step,
)
from tests.theory.spurious.samples import network, pure, sample, start


def walk(step, rate, seed=0):
    """Fifty steps with gradients that depend on where one is."""
    generator = torch.Generator().manual_seed(seed)
    parameters = torch.randn(7, generator=generator, dtype=torch.float64)
    buffer, path = torch.zeros(7, dtype=torch.float64), []
    for _ in range(50):
        slope = torch.sin(3 * parameters) + torch.randn(7, generator=generator, dtype=torch.float64)
        parameters, buffer = step(parameters, buffer, slope, rate, 0.9)
        path.append(parameters)
    return torch.stack(path)


def test_the_two_forms_of_momentum_coincide_at_rates_that_differ_by_one_minus_gamma():
    average = walk(average_step, 0.3)
    torch.testing.assert_close(walk(heavy_ball_step, heavy_ball_rate(0.3, 0.9)), average, rtol=1e-6, atol=1e-9)
    assert float((walk(heavy_ball_step, 0.031) - average).abs().max()) > 1e-3


def test_the_heavy_ball_is_a_frameworks_momentum():
    theirs = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.SGD([theirs], 0.03, momentum=0.8)
    ours, buffer = theirs.detach().clone(), torch.zeros(3, dtype=torch.float64)
    for number in range(5):
        theirs.grad = torch.cos(theirs.detach()) + number
        ours, buffer = heavy_ball_step(ours, buffer, torch.cos(ours) + number, 0.03, 0.8)
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach())


@pytest.mark.parametrize("form", ["pure", "released"])
def test_descent_is_a_frameworks_full_batch_training(form):
    filters, examples = pure(start()), sample()
    if form == "released":
        signs = torch.tensor([-1.0] * 20 + [1.0] * 20, dtype=torch.float64)
        filters = filters._replace(bias=start(seed=1)[:, 0], signs=signs)
    model = network(filters)
    optimizer = torch.optim.SGD(model.filters.parameters(), 0.03, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(examples.inputs), (examples.labels > 0).long()).backward()
        optimizer.step()
    descent = HeavyBall(filters, 0.03, 0.9)
    descent.run(examples, 20)
    torch.testing.assert_close(descent.filters.weights, model.filters.weight.detach(), rtol=1e-8, atol=1e-12)
    buffer = optimizer.state[model.filters.weight]["momentum_buffer"]
    torch.testing.assert_close(descent.buffer.weights, buffer, rtol=1e-8, atol=1e-12)
    if form == "released":
        torch.testing.assert_close(descent.filters.bias, model.filters.bias.detach(), rtol=1e-8, atol=1e-12)


def test_the_start_is_left_as_it_was():
    filters = pure(start())
    HeavyBall(filters, 0.1).run(sample(), 3)
    torch.testing.assert_close(filters.weights, start())


def test_projections_follow_the_papers_update_of_the_buffer():
    """<w, v_c> after a step is <w - eta (gamma g + (1 - gamma) grad), v_c>, in the paper's units."""
    examples, rate = sample(), 0.3
    descent = HeavyBall(pure(start()), heavy_ball_rate(rate, 0.9), 0.9)
    descent.run(examples, 10)
    weights, average = descent.filters.weights, 0.1 * descent.buffer.weights
    slope = gradient(descent.filters, examples).weights
    expected = (weights - rate * (0.9 * average + 0.1 * slope)) @ examples.core
    descent.run(examples, 1)
    torch.testing.assert_close(descent.filters.weights @ examples.core, expected)


def test_after_a_balanced_warm_up_the_buffer_points_along_the_core_feature():
    examples = sample(n=400, seed=3, alpha=0.5, dtype=torch.float32)
    smallest = int(torch.bincount(examples.cells).min())
    balanced = examples.take(torch.cat([torch.nonzero(examples.cells == c)[:smallest, 0] for c in range(4)]))
    descent = HeavyBall(pure(start().float()), 0.03, 0.9)
    descent.run(balanced, 2000)
    buffer = buffer_alignment(descent.buffer.weights, balanced.core, balanced.spurious)
    assert buffer.core > 2 * buffer.spurious
    assert buffer.core_lowest < 0


def test_alignment_of_a_buffer_is_read_off_its_projections():
    v_core, v_spurious = torch.eye(3)[:2]
    buffer = torch.tensor([[2.0, 0.5, 9.0], [-1.0, -0.7, 9.0]])
    assert buffer_alignment(buffer, v_core, v_spurious) == (2.0, pytest.approx(0.7), -1.0)


def test_forgetting_clears_the_buffers_and_nothing_else():
    descent = HeavyBall(pure(start()), 0.03, 0.9)
    descent.run(sample(), 3)
    weights = descent.filters.weights
    assert bool(descent.buffer.weights.any())
    descent.forget()
    assert not bool(descent.buffer.weights.any())
    assert descent.filters.weights is weights


def test_momentum_of_one_or_more_is_refused():
    with pytest.raises(ConfigError, match=r"momentum is 1\.0"):
        HeavyBall(pure(start()), 0.1, 1.0)
