from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import Brewing, BullseyePolytope, Targets, train_victim
from holdfast.poisoning.attacks.crafting.objectives import bullseye
from tests.poisoning.attacks.toy import (
    ADAM,
    HEAD,
    clean_victim,
    control,
    splits,
    surrogate,
    tiny_case,
    tiny_examples,
    tiny_net,
    trained,
    trial,
    victim,
)

BREWING = Brewing(steps=6, step_size=0.01, signed=False, decay=False, start="bases")


def test_the_objective_is_the_distance_from_the_target_over_networks_and_layers():
    train, targets, bases = tiny_case()
    models = [tiny_net(0), tiny_net(1)]
    poisoned = BullseyePolytope(BREWING, layers=("0", "2")).craft(models, train, targets, bases)
    poisons = poisoned.apply(train).gather(bases)[0]
    terms = []
    for model in models:
        for part in (model[:-1], model[:1], model[:3]):
            terms.append(bullseye(part(poisons), part(targets.images)))
    assert poisoned.objective == pytest.approx(float(torch.stack(terms).mean().detach()), rel=1e-4)
    assert poisoned.trace[-1] < poisoned.trace[0]


def test_bases_that_are_the_target_are_on_the_bullseye():
    """A public implementation takes the bases' features for the target's, so that nothing is attacked."""
    train, targets, bases = tiny_case(poisons=1)
    same = Targets(train.inputs.values[bases], torch.tensor([0]), 1)
    attack = BullseyePolytope(replace(BREWING, steps=1))
    assert attack.craft(tiny_net(), train, same, bases).trace[0] == 0
    assert attack.craft(tiny_net(), train, targets, bases).trace[0] > 0.01


def test_dropout_is_drawn_from_the_attacks_own_stream_and_averaged():
    train, targets, bases = tiny_case()
    model = tiny_net(dropout=0.5)
    one, three = (BullseyePolytope(BREWING, dropout_draws=draws) for draws in (1, 3))
    traces = [attack.craft(model, train, targets, bases, seed=2).trace for attack in (one, one, three)]
    assert torch.equal(traces[0], traces[1]) and not torch.equal(traces[0], traces[2])
    off = BullseyePolytope(BREWING).craft(model, train, targets, bases, seed=2).trace
    assert not torch.equal(off, traces[0]) and not any(module.training for module in model.modules())
    with pytest.raises(ConfigError, match="the surrogates have none"):
        one.craft(tiny_net(), train, targets, bases)


def test_the_attack_on_transfer_learning_works():
    wins = 0.0
    for number in (0, 1):
        targets, bases = trial(number)
        poisoned = BullseyePolytope(ADAM).craft(surrogate(), splits().train, targets, bases)
        attacked = victim(poisoned)
        assert control(poisoned).success == 0 and attacked.test.accuracy > clean_victim().test.accuracy - 0.05
        wins += attacked.success
    assert wins >= 1


def test_the_attack_on_fine_tuning_works():
    targets, bases = trial(0)
    poisoned = BullseyePolytope(ADAM, layers=("norms.3",)).craft(surrogate(), splits().train, targets, bases)
    settings = replace(HEAD, learning_rate=0.01, epochs=3)
    attacked, clean = (
        train_victim(trained(), data, targets, settings, scenario="fine-tuning")
        for data in (poisoned.poison(splits()), splits())
    )
    assert attacked.confidence > clean.confidence + 0.2


def test_several_targets_and_unknown_layers_are_refused():
    train, targets, bases = tiny_case()
    two = Targets.of(tiny_examples(6, seed=1), [0, 2], 1)
    with pytest.raises(ConfigError, match="one target and was given 2"):
        BullseyePolytope(BREWING).craft(tiny_net(), train, two, bases)
    with pytest.raises(ConfigError, match="no layer 'nine'"):
        BullseyePolytope(BREWING, layers=("nine",)).craft(tiny_net(), train, targets, bases)
    with pytest.raises(ConfigError, match="dropout_draws is -1"):
        BullseyePolytope(dropout_draws=-1)
