"""Federations of many clients and any settings: executors agree, to the bit where the work is only shared out.

In double precision, where they differ by 1e-16: in single precision a rounding may fall on the other side of a kink of
a ReLU or of max-pooling, which changed the personal model of one client of 76 by 7e-4 (seed 1011817530).
"""

import random
from dataclasses import replace

import pytest
import torch

from holdfast.federated import Ditto, FineTuning, Local, Rounds, federate
from tests.federated.toy import convolutional, linear, toy_clients


@pytest.mark.soak
def test_executors_agree_in_federations_of_any_size(seed):
    dice = random.Random(seed)
    many = dice.randint(2, 150)
    shape, model = dice.choice([((6,), linear), ((1, 8, 8), convolutional)])
    clients = toy_clients(tuple(dice.randint(1, 40) for _ in range(many)), shape=shape, dtype=torch.float64)
    settings = Rounds(
        rounds=dice.randint(1, 4), cohort=dice.randint(1, min(20, many)), batch_size=dice.choice([1, 8, 64]),
        local_steps=dice.randint(1, 3), learning_rate=0.05, sampling=dice.choice(["examples", "uniform"]),
        evaluate_every=0, seed=seed, executor="batched",
    )  # fmt: skip
    methods = dice.sample([Ditto(0.5), Local(), FineTuning(epochs=1)], dice.randint(0, 3))
    ran = {
        "batched": federate(clients, model().double(), settings, personalize=methods),
        "chunks": federate(clients, model().double(), replace(settings, chunk=dice.randint(1, 9)), personalize=methods),
        "serial": federate(clients, model().double(), replace(settings, executor="serial"), personalize=methods),
        "pool": federate(clients, model().double(), replace(settings, executor="pool", workers=1), personalize=methods),
        "workers": federate(
            clients, model().double(), replace(settings, executor="pool", workers=2), personalize=methods
        ),
    }
    close = {"rtol": 0, "atol": 1e-9}
    for name, one in ran.items():
        torch.testing.assert_close(
            one.weights, ran["serial"].weights, **close, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert torch.equal(ran["pool"].weights, ran["workers"].weights)
    everybody = torch.arange(many)
    for method in methods:
        models = {name: one.runtime.personal(method.label, everybody, one.weights) for name, one in ran.items()}
        torch.testing.assert_close(models["batched"], models["serial"], **close)
        assert torch.equal(models["pool"], models["workers"])
