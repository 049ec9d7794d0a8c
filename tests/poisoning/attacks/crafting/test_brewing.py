import math
from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.brewing import Brewing, brew, project, quantise


def images(n=4, seed=0, grid=True):
    generator = torch.Generator().manual_seed(seed)
    if grid:
        return torch.randint(256, (n, 3, 4, 4), generator=generator) / 255
    return torch.rand(n, 3, 4, 4, generator=generator)


def towards(goal):
    return lambda poisons, stream: (poisons - goal).square().sum()


def test_projection_is_the_nearest_point_of_the_ball_and_the_pixel_range():
    bases, wild = images(), torch.randn(4, 3, 4, 4)
    for epsilon in (0.01, 0.3, 2.0):
        projected = project(wild, bases, epsilon)
        wanted = (bases + wild.clamp(-epsilon, epsilon)).clamp(0, 1) - bases
        torch.testing.assert_close(projected, wanted, rtol=0, atol=1e-6)
        assert torch.equal(project(projected, bases, epsilon), projected)


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("epsilon", [8 / 255, 16 / 255, 0.02, None])
def test_quantised_perturbations_are_the_nearest_levels_inside_by_brute_force(grid, epsilon):
    bases = images(grid=grid)
    bases[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    delta = project(0.05 * torch.randn(4, 3, 4, 4, generator=torch.Generator().manual_seed(1)), bases, epsilon or 1.0)
    rounded = quantise(delta, bases, epsilon)
    levels = torch.arange(-255, 256).double() / 255
    inside = (bases.double().flatten()[:, None] + levels).clamp(-1e-6, 1 + 1e-6) == bases.double().flatten()[
        :, None
    ] + levels
    if epsilon is not None:
        inside &= levels.abs() <= epsilon + 1e-9
    distance = (delta.double().flatten()[:, None] - levels).abs().masked_fill(~inside, math.inf)
    chosen = (rounded.double().flatten()[:, None] - levels).abs().argmin(1)
    assert inside[torch.arange(len(chosen)), chosen].all()
    picked = distance[torch.arange(len(chosen)), chosen]
    assert torch.allclose(picked, distance.min(1).values, atol=1e-6)
    if epsilon is not None:
        assert rounded.abs().max() <= epsilon * (1 + 1e-6)


def test_a_reachable_goal_is_reached_and_an_unreachable_one_approached_to_the_border():
    bases = images()
    near = (bases + 4 / 255).clamp(max=1)
    brewing = Brewing(steps=200, step_size=0.005)
    brewed = brew(towards(near), bases, brewing)
    assert torch.allclose(brewed.perturbations, near - bases, atol=1e-6) and brewed.objective < 1e-9
    far = brew(towards(bases + 1), bases, brewing).perturbations
    assert torch.allclose(far, torch.minimum(1 - bases, torch.tensor(8 / 255)), atol=1e-6)


def test_the_first_signed_step_is_the_step_size_along_the_sign():
    bases = torch.full((2, 3, 4, 4), 0.5)
    seen = []

    def objective(poisons, stream):
        seen.append(poisons.detach().clone())
        return (poisons * weights).sum()

    weights = torch.randn(2, 3, 4, 4)
    brew(objective, bases, Brewing(epsilon=0.1, steps=2, step_size=0.02, start="bases", decay=False))
    torch.testing.assert_close(seen[1] - seen[0], -0.02 * weights.sign(), rtol=1e-4, atol=1e-6)


def test_steps_are_adam_on_signs_with_projection():
    bases = images()
    goal = images(seed=5)
    start = torch.zeros_like(bases).requires_grad_()
    optimizer = torch.optim.Adam([start], lr=0.01)
    wanted = []
    for _ in range(7):
        value = (bases + start - goal).square().sum()
        wanted.append(float(value.detach()))
        (gradient,) = torch.autograd.grad(value, start)
        start.grad = gradient.sign()
        optimizer.step()
        start.data = (bases + start.data.clamp(-0.1, 0.1)).clamp(0, 1) - bases
    trace = brew(towards(goal), bases, Brewing(0.1, steps=7, step_size=0.01, start="bases", decay=False)).trace
    torch.testing.assert_close(trace, torch.tensor(wanted))


def test_step_sizes_fall_at_the_published_steps():
    rates = [Brewing(steps=250, step_size=1.0).rate(step) for step in range(250)]
    assert [step for step in range(1, 250) if rates[step] < rates[step - 1]] == [93, 156, 218]
    assert rates[0] == 1 and rates[-1] == pytest.approx(1e-3)
    short = Brewing(steps=150)
    assert [step for step in range(1, 150) if short.rate(step) < short.rate(step - 1)] == [56, 93, 131]
    assert Brewing(decay=False).rate(249) == Brewing().step_size


def test_restarts_start_elsewhere_are_judged_alike_and_the_best_is_kept():
    bases, judged, starts = torch.full((1, 3, 4, 4), 0.5), [], []

    def objective(poisons, stream):
        value = torch.cos(200 * poisons).sum() + 0 * poisons.sum()
        draw = float(torch.rand((), generator=stream))
        if not poisons.requires_grad:
            judged.append((float(value), draw))
        return value

    def before(step, poisons):
        if step == 0:
            starts.append(poisons)

    brewed = brew(objective, bases, Brewing(steps=3, restarts=5), seed=1, before_step=before)
    assert len(judged) == 5 and len({draw for _, draw in judged}) == 1
    assert brewed.objective == min(value for value, _ in judged)
    assert len({float(start.sum()) for start in starts}) == 5
    alone = brew(objective, bases, Brewing(steps=3, restarts=1), seed=1)
    assert alone.objective == judged[0][0]


def test_every_iterate_and_the_noise_at_the_start_are_inside():
    bases, epsilon = images(), 8 / 255

    def before(step, poisons):
        assert (poisons - bases).abs().max() <= epsilon + 1e-6
        assert poisons.min() >= 0 and poisons.max() <= 1 + 1e-7

    brewed = brew(towards(bases - 1), bases, Brewing(epsilon, steps=20, step_size=0.5), before_step=before)
    assert brewed.perturbations.abs().max() <= epsilon * (1 + 1e-6)


def test_a_search_depends_on_its_seed_alone_and_tells_its_progress():
    bases, told = images(), []
    brewing = Brewing(steps=4, restarts=2)

    def noisy(poisons, stream):
        return (poisons * torch.randn(poisons.shape, generator=stream)).sum()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = brew(noisy, bases, brewing, seed=3, progress=lambda *values: told.append(values))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.perturbations, brew(noisy, bases, brewing, seed=3).perturbations)
    assert not torch.equal(one.perturbations, brew(noisy, bases, brewing, seed=4).perturbations)
    assert [values[:2] for values in told] == [(restart, step) for restart in range(2) for step in range(4)]
    assert any(one.trace.tolist() == pytest.approx([v[2] for v in told if v[0] == restart]) for restart in range(2))


def test_what_is_no_number_stops_the_search():
    bases = images()
    with pytest.raises(FloatingPointError, match="at step 0"):
        brew(lambda poisons, stream: (poisons * math.nan).sum(), bases, Brewing(steps=2))


def test_what_makes_no_sense_is_refused():
    for options in ({"epsilon": 0}, {"epsilon": math.inf}, {"steps": 0}, {"restarts": 0}, {"step_size": 0}):
        with pytest.raises(ConfigError):
            replace(Brewing(), **options)
