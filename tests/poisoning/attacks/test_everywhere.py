"""What every attack must keep: labels, budget, the surrogate, the caller's random state; and to be repeatable."""

import copy
from dataclasses import replace

import pytest
import torch

from holdfast.data.transforms import Compose, RandomFlip
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import (
    Backdoor,
    Brewing,
    BullseyePolytope,
    CleanLabelBackdoor,
    ConvexPolytope,
    FeatureCollision,
    GradientMatching,
    HiddenTrigger,
    MetaPoison,
    PoisonedSet,
    RandomShift,
    SleeperAgent,
    random_patch,
)
from tests.poisoning.attacks.toy import tiny_case, tiny_net

BREWING = Brewing(steps=4, restarts=2)
PLAIN = replace(BREWING, signed=False)
LOOKING = Compose((RandomShift(1.5), RandomFlip()))
TARGETED = {
    "gradient matching": GradientMatching(BREWING, LOOKING),
    "gathered gradient matching": GradientMatching(BREWING, None, gathering=0.5),
    "bullseye polytope": BullseyePolytope(PLAIN),
    "bullseye polytope, end to end": BullseyePolytope(PLAIN, layers=("2",)),
    "convex polytope": ConvexPolytope(PLAIN),
    "feature collision": FeatureCollision(steps=4, step_size=0.1),
    "feature collision, hard": FeatureCollision(steps=4, step_size=0.1, epsilon=8 / 255),
    "meta poison": MetaPoison(PLAIN, clean=4),
}
BACKDOORS = {
    "sleeper agent": SleeperAgent(BREWING, LOOKING),
    "clean-label backdoor": CleanLabelBackdoor(),
    "hidden trigger": HiddenTrigger(steps=4, step_size=0.1),
}
ATTACKS = TARGETED | BACKDOORS


def crafted(name, seed=0, surrogates=None):
    train, targets, bases = tiny_case()
    aim = targets if name in TARGETED else Backdoor(random_patch(3, 3, 0), 2, 1)
    return train, bases, ATTACKS[name].craft(surrogates or [tiny_net(0), tiny_net(1)], train, aim, bases, seed=seed)


@pytest.mark.parametrize("name", ATTACKS)
def test_poisons_keep_labels_and_budget_and_are_eight_bit_images(name):
    train, bases, poisoned = crafted(name)
    assert torch.equal(poisoned.ids, train.ids[bases]) and poisoned.labels is None
    now = poisoned.apply(train)
    assert torch.equal(now.labels, train.labels)
    images = now.gather(bases)[0]
    assert images.min() >= 0 and images.max() <= 1
    assert torch.allclose(images * 255, (images * 255).round(), atol=1e-3)
    assert poisoned.largest > 0
    if name != "feature collision":
        assert poisoned.largest <= 8 / 255 * (1 + 1e-6) and poisoned.epsilon == pytest.approx(8 / 255)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_seed_gives_the_same_poisons_and_nobody_reseeds_the_caller(name, tmp_path):
    torch.manual_seed(11)
    before = torch.get_rng_state()
    surrogates = [tiny_net(0), tiny_net(1)]
    torch.set_rng_state(before)
    _, _, one = crafted(name, seed=1, surrogates=surrogates)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(12)
    train, bases, same = crafted(name, seed=1)
    assert torch.equal(one.perturbations, same.perturbations) and torch.equal(one.trace, same.trace)
    one.save(tmp_path / "poisons.safetensors")
    loaded = PoisonedSet.load(tmp_path / "poisons.safetensors")
    assert torch.equal(loaded.apply(train).gather(bases)[0], same.apply(train).gather(bases)[0])
    assert loaded.settings["seed"] == 1 and loaded.attack == type(ATTACKS[name]).__name__


@pytest.mark.parametrize("name", ATTACKS)
def test_surrogates_are_left_as_they_were(name):
    surrogates = [tiny_net(0), tiny_net(1)]
    for surrogate in surrogates:
        surrogate.train()
        surrogate[1].eval()
        surrogate[0].weight.requires_grad_(False)
    before = [copy.deepcopy(surrogate.state_dict()) for surrogate in surrogates]
    crafted(name, surrogates=surrogates)
    for surrogate, state in zip(surrogates, before, strict=True):
        assert all(torch.equal(state[key], value) for key, value in surrogate.state_dict().items())
        assert surrogate.training and not surrogate[1].training and surrogate[2].training
        assert [p.requires_grad for p in surrogate.parameters()] == [False] + [True] * 7
        assert all(p.grad is None for p in surrogate.parameters())


@pytest.mark.parametrize("name", ATTACKS)
def test_bases_of_another_class_are_refused(name):
    train, targets, bases = tiny_case()
    aim = targets if name in TARGETED else Backdoor(random_patch(3, 3, 0), 2, 1)
    with pytest.raises(ConfigError, match="clean-label poisons keep labels"):
        ATTACKS[name].craft(tiny_net(), train, aim, torch.tensor([0, 1, 2]))
    with pytest.raises(ConfigError, match="there are no bases"):
        ATTACKS[name].craft(tiny_net(), train, aim, bases[:0])
    with pytest.raises(ConfigError, match="given twice"):
        ATTACKS[name].craft(tiny_net(), train, aim, bases[[0, 0]])
    with pytest.raises(ConfigError, match="there is no surrogate"):
        ATTACKS[name].craft([], train, aim, bases)
