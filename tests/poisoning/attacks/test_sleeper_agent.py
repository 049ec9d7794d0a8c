from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.attacks import Backdoor, Brewing, FrozenExtractor, SleeperAgent, random_patch, steepest_bases
from holdfast.poisoning.attacks.crafting.objectives import misalignment, parameter_gradient
from holdfast.streams import torch_stream
from tests.poisoning.attacks.toy import SIGNED, backdoor, control, splits, surrogate, tiny_case, tiny_net, victim


def case():
    train, _, bases = tiny_case()
    return train, bases, Backdoor(random_patch(3, 3, 0), 2, 1, place=(0, 0))


def test_the_wanted_gradient_is_that_of_patched_source_images_under_the_adversarial_label():
    train, bases, door = case()
    model = tiny_net()
    poisoned = SleeperAgent(Brewing(epsilon=16 / 255, steps=2), None).craft(model, train, door, bases)
    sources = train.inputs.values[train.labels == 2]
    patched = door.paste(sources, torch.Generator())
    wanted = parameter_gradient(model, patched, torch.ones(len(patched), dtype=torch.int64))[0]
    poisons, labels = poisoned.apply(train).gather(bases)
    mine = misalignment(parameter_gradient(model, poisons, labels)[0], wanted)
    assert poisoned.objective == pytest.approx(float(mine), rel=1e-4)


def test_surrogates_are_trained_again_on_the_poisons_and_the_wanted_gradient_is_new():
    """A public implementation keeps the first network's gradient as the goal of the later ones."""
    train, bases, door = case()
    asked, models = [], [tiny_net(1), tiny_net(2)]

    def retrain(poisoned, number):
        images = poisoned.gather(bases)[0]
        changed = (images - train.inputs.values[bases]).abs()
        assert 0 < changed.max() <= 16 / 255 * (1 + 1e-6)
        assert torch.equal(poisoned.labels, train.labels)
        asked.append(number)
        return models[number - 1].train()

    attack = SleeperAgent(Brewing(epsilon=16 / 255, steps=9), None, retrain_every=3)
    found = attack.craft(tiny_net(0), train, door, bases, retrain=retrain)
    assert asked == [1, 2]
    patched = door.paste(train.inputs.values[train.labels == 2], torch.Generator())
    last = models[1].eval()
    wanted = parameter_gradient(last, patched, torch.ones(len(patched), dtype=torch.int64))[0]
    poisons, labels = found.apply(train).gather(bases)
    mine = misalignment(parameter_gradient(last, poisons, labels)[0], wanted)
    assert found.objective == pytest.approx(float(mine), rel=1e-4)
    kept = attack.craft(tiny_net(0), train, door, bases)
    assert not torch.equal(kept.trace[3:], found.trace[3:]) and torch.equal(kept.trace[:3], found.trace[:3])


def test_patches_are_at_random_places_and_sources_are_limited():
    train, bases, door = case()
    door = replace(door, place="random")
    whole = SleeperAgent(Brewing(steps=1), None).craft(tiny_net(), train, door, bases)
    few = SleeperAgent(Brewing(steps=1), None, sources=3).craft(tiny_net(), train, door, bases)
    assert whole.trace[0] != few.trace[0]
    images = train.inputs.values[train.labels == 2]
    first = door.paste(images, torch_stream(0, "patched", 0))
    assert not torch.equal(first, door.paste(images, torch_stream(0, "patched", 1)))


def test_the_backdoor_opens_in_transfer_learning():
    model, gains = FrozenExtractor(surrogate()), []
    for number in (0, 3):
        door = backdoor(number)
        bases = steepest_bases(model, splits().train, door.adversarial_class, 15)
        poisoned = SleeperAgent(SIGNED, None).craft(model, splits().train, door, bases)
        gains.append(victim(poisoned).success - control(poisoned).success)
    assert sum(gains) / 2 > 0.2


def test_what_makes_no_sense_is_refused():
    train, bases, door = case()
    with pytest.raises(ConfigError, match="retrain_every is 0"):
        SleeperAgent(retrain_every=0)
    with pytest.raises(DataError, match="no example of the source class 7"):
        SleeperAgent().craft(tiny_net(), train, replace(door, source_class=7), bases)
