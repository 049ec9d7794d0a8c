"""Theorem 2.3.1 of CREST: its bounds hold where they are said to, and not where they are not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.theory.crest import gradient_gap, largest_tolerance, stationarity_bound, step_length

positive = st.floats(0.01, 100)


@given(positive, positive, positive, positive, st.floats(0, 0.3))
def test_at_the_largest_tolerance_the_gradient_is_off_by_its_own_length(end, start, way, loss, epsilon):
    tau = largest_tolerance([end], [start], [way], [loss], epsilon)
    assert gradient_gap(tau, loss, way, epsilon * start) == pytest.approx(end, abs=1e-9 * max(start, end))


@given(st.lists(st.tuples(positive, positive, positive, positive), min_size=1, max_size=5), st.floats(0, 0.3))
def test_the_tightest_region_decides(regions, epsilon):
    each = [largest_tolerance(*([value] for value in region), epsilon) for region in regions]
    assert largest_tolerance(*zip(*regions, strict=True), epsilon) == min(each)


@given(st.floats(0.1, 3), st.floats(-2, 2).filter(lambda c: abs(c) > 0.01))
def test_for_a_wrong_curvature_the_gap_is_exact_and_for_a_wrong_cube_it_is_too_small(way, off):
    """F - L = c d^2 has the slope 2 c d, which is 2 rho L / d; c d^3 has 3 c d^2, half as much again."""
    loss = 5.0
    assert abs(2 * off * way) == pytest.approx(gradient_gap(abs(off) * way**2 / loss, loss, way))
    assert abs(3 * off * way**2) == pytest.approx(1.5 * gradient_gap(abs(off) * way**3 / loss, loss, way))


@pytest.mark.parametrize(("size", "steps"), [(1, 200), (8, 200), (64, 50)])
def test_sgd_on_a_quadratic_stays_below_the_bound_and_not_far_below(size, steps):
    """Gradients without bias, of variance sigma^2 / r: the mean of |grad|^2 over the steps, over 200 runs."""
    generator = torch.Generator().manual_seed(0)
    curvature, sigma = torch.linspace(0.2, 2.0, 10).double(), 3.0
    w = torch.ones(200, 10).double() * 2
    excess = float((0.5 * curvature * w[0] ** 2).sum())
    facts = {"smoothness": 2.0, "excess": excess, "sigma": sigma}
    rate, squares = step_length(steps, size, **facts), []
    for _ in range(steps):
        gradient = curvature * w
        squares.append(gradient.square().sum(1).mean())
        noise = torch.randn(w.shape, generator=generator, dtype=torch.float64) * sigma / math.sqrt(10 * size)
        w = w - rate * (gradient + noise)
    measured, bound = float(torch.stack(squares).mean()), stationarity_bound(steps, size, **facts)
    assert measured <= bound
    assert measured > bound / 30


def test_subsets_r_times_as_large_need_r_times_fewer_steps_where_noise_rules():
    facts = {"smoothness": 1.0, "excess": 1.0, "sigma": 100.0}
    assert stationarity_bound(10**6, 4, **facts) == pytest.approx(stationarity_bound(4 * 10**6, 1, **facts), rel=1e-2)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="must be positive"):
        gradient_gap(0.1, 1.0, 0.0)
    with pytest.raises(ConfigError, match="positive losses"):
        largest_tolerance([], [], [], [], 0.1)
    assert largest_tolerance([0.1], [1.0], [1.0], [1.0], 0.1) < 0, "none is small enough"
