from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import SETTINGS, FrozenExtractor, PoisonedSet, renew_head, train_victim
from holdfast.training import Plan, Policy, predict
from tests.poisoning.attacks.toy import HEAD, clean_victim, splits, surrogate, trained, trial, victim


def stamped(number=0, poisons=15):
    """The bluntest attack: bases turned into the target."""
    targets, bases = trial(number, poisons)
    images = splits().train.gather(bases)[0]
    perturbations = ((targets.images - images) * 255).round() / 255
    return PoisonedSet("stamped", splits().train.ids[bases], perturbations, targets)


@dataclass
class Drop(Policy):
    """A defence that knows too much: it drops given ids."""

    name: ClassVar[str] = "drop"
    ids: torch.Tensor

    def update(self, context):
        return Plan(copies=~torch.isin(context.examples.ids, self.ids))


def test_a_blunt_attack_succeeds_and_a_policy_that_drops_its_poisons_defends():
    poisoned = stamped()
    attacked, clean = victim(poisoned), clean_victim()
    assert attacked.success == 1 and attacked.right == 0 and attacked.confidence > 0.8
    assert clean.success == 0 and clean.right == 1 and clean.test.accuracy > 0.9
    defended = victim(poisoned, defence=Drop(poisoned.ids))
    assert defended.success == 0 and defended.right == 1


def test_training_a_head_on_features_is_training_it_behind_a_frozen_extractor():
    """And batch norm doesn't drift, as it does where a frozen extractor is left in training mode."""
    poisoned, model = stamped(), surrogate().train()
    settings = replace(HEAD, epochs=2, seed=4)
    fast, slow = (
        train_victim(model, poisoned.poison(splits()), poisoned.aim, settings, scenario="transfer", on_images=on_images)
        for on_images in (False, True)
    )
    for (name, a), b in zip(fast.model.state_dict().items(), slow.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        if "head" not in name:
            assert torch.equal(a, trained().state_dict()[name]) and torch.equal(b, trained().state_dict()[name])
    assert not torch.equal(fast.model.head.weight, trained().head.weight)
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), trained().state_dict().values(), strict=True)
    )
    assert fast.success == slow.success


def test_fine_tuning_moves_everything_from_a_new_head_on():
    poisoned = stamped()
    settings = replace(HEAD, epochs=1, learning_rate=1e-3)
    found = train_victim(trained(), splits(), poisoned.aim, settings, scenario="fine-tuning")
    assert not torch.equal(found.model.convolutions[0].weight, trained().convolutions[0].weight)
    assert (found.model.head.weight - trained().head.weight).abs().mean() > 0.05


def test_success_is_that_of_the_last_epoch_and_of_the_returned_model():
    poisoned = stamped()
    found = victim(poisoned)
    shown = poisoned.aim.shown(splits().test)
    assert predict(found.model, shown).predicted.tolist() == [poisoned.adversarial_class]
    right = predict(found.model, splits().test).predicted == splits().test.labels
    assert float(right.float().mean()) == pytest.approx(found.test.accuracy)


def test_a_new_head_depends_on_the_seed_alone():
    before = torch.get_rng_state()
    models = [surrogate() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        renew_head(model, seed)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(models[0].head.weight, models[1].head.weight)
    assert not torch.equal(models[0].head.weight, models[2].head.weight)


def test_a_frozen_extractor_never_trains():
    model = FrozenExtractor(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)))
    assert not any(module.training for module in model.train().modules())
    assert [parameter.requires_grad for parameter in model.parameters()] == [False] * 4 + [True] * 2


def test_the_published_settings_are_those_of_the_spec():
    assert {name: settings.epochs for name, settings in SETTINGS.items()} == {
        "scratch": 40,
        "scratch-200": 200,
        "transfer": 40,
        "fine-tuning": 40,
    }
    assert [40 * at for at in SETTINGS["scratch"].milestones] == [25, 35]
    assert [200 * at for at in SETTINGS["scratch-200"].milestones] == [100, 150]
    assert SETTINGS["fine-tuning"].learning_rate == 1e-4 and SETTINGS["transfer"].learning_rate == 0.1
    with pytest.raises(ConfigError, match="did you mean 'scratch'"):
        train_victim(trained(), splits(), stamped().aim, HEAD, scenario="scrach")
