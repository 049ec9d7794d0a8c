import pytest

from holdfast.poisoning.attacks import Brewing, ConvexPolytope
from holdfast.poisoning.attacks.crafting.objectives import convex_polytope
from holdfast.poisoning.attacks.simplex import nearest_combination
from tests.poisoning.attacks.toy import ADAM, control, splits, surrogate, tiny_case, tiny_net, trial, victim

BREWING = Brewing(steps=8, step_size=0.01, signed=False, decay=False, start="bases")


def test_the_objective_is_the_distance_from_the_hull():
    train, targets, bases = tiny_case()
    models = [tiny_net(0), tiny_net(1)]
    poisoned = ConvexPolytope(BREWING).craft(models, train, targets, bases)
    poisons = poisoned.apply(train).gather(bases)[0]
    terms = []
    for model in models:
        features, goal = model[:-1](poisons).detach(), model[:-1](targets.images)[0].detach()
        best = nearest_combination(features.double(), goal.double(), steps=5000, tolerance=1e-12)
        terms.append(float(convex_polytope(features.double(), goal.double(), best)))
    assert poisoned.objective == pytest.approx(sum(terms) / 2, rel=0.02)
    assert poisoned.trace[-1] < poisoned.trace[0]


def test_a_restart_forgets_the_coefficients_of_the_last():
    train, targets, bases = tiny_case()
    one = ConvexPolytope(BREWING).craft(tiny_net(), train, targets, bases)
    events = []
    twice = ConvexPolytope(Brewing(steps=8, step_size=0.01, signed=False, decay=False, start="bases", restarts=2))
    twice.craft(tiny_net(), train, targets, bases, progress=lambda *values: events.append(values[2]))
    assert events[:8] == events[8:] == pytest.approx(one.trace.tolist())


def test_the_attack_on_transfer_learning_works():
    poisoned = ConvexPolytope(ADAM).craft(surrogate(), splits().train, *trial(4))
    assert victim(poisoned).confidence > control(poisoned).confidence + 0.2
