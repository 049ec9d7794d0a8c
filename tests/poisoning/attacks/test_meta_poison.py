import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import Brewing, FrozenExtractor, MetaPoison, renew_head, staggered_surrogates
from holdfast.poisoning.attacks.meta_poison import unrolled_loss
from tests.poisoning.attacks.toy import (
    ADAM,
    HEAD,
    control,
    splits,
    surrogate,
    tiny_case,
    tiny_examples,
    tiny_net,
    trial,
    victim,
)


def batches(dtype=torch.float32):
    first, second = tiny_examples(4), tiny_examples(5, seed=3)
    return [(part.inputs.values.to(dtype), part.labels) for part in (first, second)]


def test_looking_ahead_is_taking_the_steps():
    model = tiny_net()
    question = (tiny_examples(2, seed=9).inputs.values, torch.tensor([1, 1]))
    loss = unrolled_loss(model, batches(), question, 0.1)
    stepped = copy.deepcopy(model)
    optimizer = torch.optim.SGD(stepped.parameters(), lr=0.1)
    for inputs, labels in batches():
        optimizer.zero_grad()
        F.cross_entropy(stepped(inputs), labels).backward()
        optimizer.step()
    torch.testing.assert_close(loss, F.cross_entropy(stepped(question[0]), question[1]))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_gradient_through_the_steps_is_that_of_finite_differences():
    model = tiny_net().double()
    (x, y), later = batches(torch.float64)
    question = (tiny_examples(2, seed=9).inputs.values.double(), torch.tensor([1, 1]))

    def ahead(images):
        return unrolled_loss(model, [(images, y), later], question, 0.5)

    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(ahead(at), at)
    step = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numeric = (ahead(x + 1e-5 * step) - ahead(x - 1e-5 * step)) / 2e-5
    torch.testing.assert_close((gradient * step).sum(), numeric.detach(), rtol=1e-6, atol=1e-10)


def test_poisons_are_among_clean_examples_and_never_among_their_own_bases():
    train, targets, bases = tiny_case()
    seen = []
    model = tiny_net()
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    MetaPoison(Brewing(steps=1), clean=6).craft(model, train, targets, bases)
    sizes = [len(inputs) for inputs in seen]
    assert sizes == [11, 11, 1, 11, 11, 1]
    clean = seen[0][5:]
    others = train.inputs.values[[i for i in range(len(train)) if i not in bases.tolist()]]
    assert all(any(torch.equal(one, other) for other in others) for one in clean)


def test_the_attack_on_transfer_learning_moves_the_target():
    def new_head(seed):
        model = surrogate()
        renew_head(model, seed)
        return FrozenExtractor(model)

    surrogates = staggered_surrogates(new_head, splits().train, replace(HEAD, epochs=2), 2)
    targets, bases = trial(4)
    attack = MetaPoison(replace(ADAM, steps=20), learning_rate=0.05, clean=32)
    poisoned = attack.craft(surrogates, splits().train, targets, bases)
    assert poisoned.trace[-1] < 0.5 * poisoned.trace[0]
    assert victim(poisoned).confidence > control(poisoned).confidence


def test_what_makes_no_sense_is_refused():
    for options in ({"look_ahead": 0}, {"learning_rate": 0}, {"clean": -1}):
        with pytest.raises(ConfigError):
            MetaPoison(**options)
    train, targets, bases = tiny_case()
    with pytest.raises(ConfigError, match="unfreeze the head"):
        MetaPoison(Brewing(steps=1)).craft(tiny_net().requires_grad_(False), train, targets, bases)
