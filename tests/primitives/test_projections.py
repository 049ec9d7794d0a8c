"""What every projection and every clipping of the package must do, whatever it is given."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from holdfast.federated.aggregation.norms import clip_to_median
from holdfast.poisoning.attacks.crafting.brewing import project as project_to_pixels
from holdfast.poisoning.attacks.crafting.brewing import quantise
from holdfast.poisoning.defenses.private import PrivateCrossEntropy
from holdfast.primitives.per_example import per_example_gradients
from holdfast.primitives.pgd import Pgd
from holdfast.primitives.projections import norms_of, project_to_ball, project_to_simplex
from holdfast.training.batches import Batch
from holdfast.training.objective import Forward

SHAPE = (3, 2, 2, 2)
radii = st.sampled_from([1e-3, 8 / 255, 0.5, 3.0])


def floats(shape, low=-2.0, high=2.0, width=64):
    """Tensors of ordinary numbers: round ones, zero among them, and ones with all their digits."""
    ordinary = st.floats(low, high, allow_subnormal=False, width=width)
    kind = np.float64 if width == 64 else np.float32
    drawn = st.integers(0, 10**6).map(lambda seed: np.random.default_rng(seed).uniform(low, high, shape).astype(kind))
    return (arrays(kind, shape, elements=ordinary) | drawn).map(torch.from_numpy)


pixels = floats(SHAPE, 0.0, 1.0)
directions = floats(SHAPE, -1.0, 1.0).filter(lambda found: bool((norms_of(found) > 1e-3).all()))


@given(floats(SHAPE), floats(SHAPE), radii)
def test_points_in_a_ball_stay_where_they_are_to_the_bit(points, centres, radius):
    around = radius + float(norms_of(points - centres).max())
    assert torch.equal(project_to_ball(points, around, centres), points)
    assert torch.equal(project_to_ball(points, around + float(norms_of(points).max())), points)
    assert torch.equal(project_to_ball(centres, radius, centres), centres)


@given(directions, pixels, radii, st.floats(1.01, 100))
def test_points_outside_a_ball_go_straight_to_its_border(away, centres, radius, factor):
    unit = away / norms_of(away)
    found = project_to_ball(centres + unit * radius * factor, radius, centres)
    torch.testing.assert_close(found, centres + unit * radius, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(project_to_ball(found, radius, centres), found, rtol=1e-12, atol=1e-12)


@given(directions, pixels, radii)
def test_every_example_has_a_ball_of_its_own(away, centres, radius):
    factors = torch.tensor([0.5, 2.0, 0.0]).double().view(-1, 1, 1, 1)
    points = centres + away / norms_of(away) * radius * factors
    found = project_to_ball(points, radius, centres)
    assert torch.equal(found[[0, 2]], points[[0, 2]]) and not torch.equal(found[1], points[1])
    for place in range(3):
        alone = project_to_ball(points[place : place + 1], radius, centres[place : place + 1])
        torch.testing.assert_close(alone[0], found[place])


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
@given(points=floats(SHAPE), starts=pixels, radius=radii)
def test_pgd_moves_only_what_left_its_ball_and_its_bounds(norm, bounds, points, starts, radius):
    attack = Pgd(radius, norm=norm, bounds=bounds)
    found = attack._project(points, starts)
    size = (found - starts).abs() if norm == "inf" else norms_of(found - starts)
    assert float(size.max()) <= radius * (1 + 1e-12) + 1e-15
    assert bounds is None or (float(found.min()) >= 0 and float(found.max()) <= 1)
    torch.testing.assert_close(attack._project(found, starts), found, rtol=1e-12, atol=1e-12)
    nearest = torch.minimum(torch.maximum(points, starts - radius), starts + radius)
    if norm == "2":
        nearest = project_to_ball(points, radius, starts)
    assert torch.equal(found, nearest if bounds is None else nearest.clamp(*bounds))


@pytest.mark.parametrize("norm", ["inf", "2"])
@given(points=pixels, starts=pixels, spare=radii)
def test_pgd_leaves_perturbations_within_the_budget_to_the_bit(norm, points, starts, spare):
    size = (points - starts).abs() if norm == "inf" else norms_of(points - starts)
    attack = Pgd(spare + float(size.max()), norm=norm)
    assert torch.equal(attack._project(points, starts), points)
    assert torch.equal(Pgd(spare, norm=norm)._project(starts, starts), starts)


@pytest.mark.parametrize("norm", ["inf", "2"])
def test_an_attack_that_stays_within_its_budget_is_plain_gradient_ascent(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    x, y = torch.rand(SHAPE, dtype=torch.float64), torch.tensor([0, 1, 2])
    at = x
    for _ in range(3):
        at = at.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(at), y, reduction="sum"), at)
        at = at.detach() + 0.01 * (gradient.sign() if norm == "inf" else gradient / norms_of(gradient))
    found = Pgd(1.0, steps=3, step_size=0.01, norm=norm, bounds=None)(model, x, y)
    torch.testing.assert_close(found, at, rtol=1e-12, atol=1e-12)


@given(floats(SHAPE), pixels, radii)
def test_poisons_within_the_budget_and_the_pixel_range_are_kept_to_the_bit(perturbations, bases, radius):
    found = project_to_pixels(perturbations, bases, radius)
    low, high = (-bases).clamp(min=-radius), (1 - bases).clamp(max=radius)
    inside = (perturbations >= low) & (perturbations <= high)
    assert torch.equal(found[inside], perturbations[inside])
    assert torch.equal(found[perturbations < low], low[perturbations < low])
    assert torch.equal(found[perturbations > high], high[perturbations > high])
    assert torch.equal(project_to_pixels(found, bases, radius), found)
    assert not project_to_pixels(torch.zeros_like(bases), bases, radius).any()


@given(arrays(np.int64, SHAPE, elements=st.integers(0, 255)), arrays(np.int64, SHAPE, elements=st.integers(-8, 8)))
def test_whole_levels_within_the_budget_are_kept_to_the_bit(levels, moved):
    bases = torch.from_numpy(levels) / 255
    perturbations = torch.from_numpy(np.clip(levels + moved, 0, 255) - levels) / 255
    assert torch.equal(quantise(perturbations, bases, 8 / 255), perturbations)


@given(floats((5, 4), width=32))
def test_updates_up_to_the_median_norm_are_kept_to_the_bit_and_longer_ones_cut_to_it(updates):
    lengths = torch.linalg.vector_norm(updates.double(), dim=1)
    limit = lengths.median()
    found = clip_to_median(updates)
    kept = lengths <= limit
    assert torch.equal(found[kept], updates[kept])
    cut = updates.double() * (limit / lengths.clamp(min=1e-300))[:, None]
    torch.testing.assert_close(found[~kept].double(), cut[~kept], rtol=1e-5, atol=1e-30)
    torch.testing.assert_close(clip_to_median(found), found, rtol=1e-5, atol=1e-30)


def gradient_of(model: nn.Module, clip: str, limit: float, inputs: Tensor, labels: Tensor) -> Tensor:
    model.zero_grad()
    batch = Batch(inputs, labels, torch.arange(len(inputs)), torch.ones(len(inputs), dtype=torch.float64))
    PrivateCrossEntropy(limit, 0.0, clip)(Forward(model, batch)).backward()
    return torch.cat([part.grad.flatten() for part in model.parameters()])


@pytest.mark.parametrize("clip", ["batch", "example"])
@given(inputs=floats((3, 4)), share=st.floats(0.05, 0.95))
def test_private_gradients_below_the_limit_are_kept_and_longer_ones_cut_to_it(clip, inputs, share):
    torch.manual_seed(0)
    model, labels = nn.Linear(4, 3).double(), torch.arange(3)
    each = per_example_gradients(model, inputs, labels)
    rows = each if clip == "example" else each.mean(0, keepdim=True)
    longest = float(rows.norm(dim=1).max())
    plain = gradient_of(model, clip, 1e9, inputs, labels)
    torch.testing.assert_close(plain, each.mean(0))
    assert torch.equal(gradient_of(model, clip, longest * 1.001, inputs, labels), plain)
    cut = torch.stack([row * min(1.0, longest * share / float(row.norm())) for row in rows]).mean(0)
    torch.testing.assert_close(gradient_of(model, clip, longest * share, inputs, labels), cut)


@given(floats((6,)))
def test_no_point_of_the_simplex_is_nearer_than_the_projection(values):
    found = project_to_simplex(values)
    assert float(found.min()) >= 0 and float(found.sum()) == pytest.approx(1)
    corners = torch.eye(6, dtype=torch.float64)
    assert float(((corners - found) @ (values - found)).max()) <= 1e-12
    torch.testing.assert_close(project_to_simplex(found), found, rtol=0, atol=1e-12)


@given(arrays(np.int64, (6,), elements=st.integers(0, 8)))
def test_points_of_the_simplex_stay_where_they_are_to_the_bit(counts):
    counts[0] += 64 - counts.sum()
    inside = torch.from_numpy(counts / 64)
    assert torch.equal(project_to_simplex(inside), inside)
