import pytest
import torch
from torch import nn

from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import FeatureCollision, Targets
from tests.poisoning.attacks.toy import control, splits, surrogate, tiny_case, tiny_net, trial, victim


def linear_case(seed=0):
    """Features W x + w of images in the middle of the pixel range, so that no bound is met."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, 2))
    generator = torch.Generator().manual_seed(seed)
    pixels = 0.5 + 0.02 * (2 * torch.rand(5, 3, 2, 2, generator=generator) - 1)
    train = Examples.of(pixels[:4], [1, 1, 1, 0])
    return model, train, Targets(pixels[4:], torch.tensor([0]), 1)


def test_for_linear_features_the_minimiser_is_that_of_the_normal_equations():
    model, train, targets = linear_case()
    bases, beta = torch.tensor([0, 1, 2]), 0.3
    attack = FeatureCollision(beta=beta, step_size=0.2, steps=500, tolerance=1e-9)
    poisoned = attack.craft(model, train, targets, bases)
    W = model[1].weight.detach().double()
    b = train.inputs.values[bases].flatten(1).double()
    t = targets.images.flatten().double()
    wanted = torch.linalg.solve(W.T @ W + beta * torch.eye(12), (W.T @ (W @ t))[:, None] + beta * b.T).T
    assert (poisoned.perturbations.flatten(1) - (wanted - b)).abs().max() < 0.51 / 255


def test_the_watermark_is_where_the_search_starts():
    model, train, targets = linear_case()
    bases = torch.tensor([0, 1])
    attack = FeatureCollision(steps=1, watermark=0.25, beta=2.0)
    trace = attack.craft(model, train, targets, bases).trace
    b = train.inputs.values[bases]
    x = 0.25 * targets.images + 0.75 * b
    distance = (model[:2](x) - model[:2](targets.images)).square().sum(1) + 2 * (x - b).flatten(1).square().sum(1)
    assert float(trace[0]) == pytest.approx(float(distance.mean().detach()), rel=1e-5)


def test_a_step_that_would_raise_the_objective_is_not_taken():
    """A public implementation changes the image before it rejects the step."""
    train, targets, bases = tiny_case()
    poisoned = FeatureCollision(step_size=50.0, steps=60, tolerance=0).craft(tiny_net(), train, targets, bases)
    assert (poisoned.trace.diff() <= 1e-6).all() and poisoned.trace[-1] < poisoned.trace[0]


def test_poisons_do_not_depend_on_each_other():
    train, targets, bases = tiny_case()
    attack = FeatureCollision(step_size=0.5, steps=20, tolerance=0)
    together = attack.craft(tiny_net(), train, targets, bases)
    alone = attack.craft(tiny_net(), train, targets, bases[2:3])
    assert torch.equal(together.perturbations[2:3], alone.perturbations)


def test_the_search_stops_when_nothing_moves():
    train, targets, bases = tiny_case()
    poisoned = FeatureCollision(step_size=1e-9, steps=50).craft(tiny_net(), train, targets, bases)
    assert len(poisoned.trace) == 1


def test_the_soft_budget_works_in_transfer_learning_and_says_how_far_it_went():
    poisoned = FeatureCollision(steps=60).craft(surrogate(), splits().train, *trial(1))
    assert poisoned.epsilon is None and poisoned.largest > 16 / 255
    assert victim(poisoned).success == 1 and control(poisoned).success == 0


def test_what_makes_no_sense_is_refused():
    for options in ({"beta": -1}, {"steps": 0}, {"step_size": 0}, {"watermark": 1}, {"epsilon": 0}):
        with pytest.raises(ConfigError):
            FeatureCollision(**options)
