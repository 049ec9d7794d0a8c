"""A small bed for attacks: four shapes, a network that tells them apart, targets it sees rightly."""

import copy
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from holdfast.data import Examples
from holdfast.poisoning.attacks import (
    Backdoor,
    Brewing,
    Targets,
    ask,
    random_bases,
    random_patch,
    train_surrogate,
    train_victim,
)
from holdfast.poisoning.bed import shape_cnn, shape_splits
from holdfast.training import Training, predict

CLASSES = 4
TRAINING = Training(
    epochs=15,
    batch_size=32,
    learning_rate=0.05,
    nesterov=True,
    weight_decay=5e-4,
    schedule="cosine",
    augment="flip",
    threads=1,
)
HEAD = replace(TRAINING, epochs=25, schedule="steps", augment="none")
ADAM = Brewing(epsilon=16 / 255, steps=100, step_size=0.01, signed=False, decay=False, start="bases")
SIGNED = Brewing(epsilon=16 / 255, steps=100, step_size=0.01)


@cache
def splits():
    return shape_splits(800, 200, classes=CLASSES)


@cache
def trained():
    return train_surrogate(shape_cnn(0, CLASSES, width=12), splits().train, TRAINING)


def surrogate():
    return copy.deepcopy(trained())


def trial(number, poisons=15):
    """A target that the network sees rightly, and bases of another class."""
    seen = predict(trained(), splits().test).predicted == splits().test.labels
    rightly = seen.nonzero().flatten()
    target = int(rightly[(37 * number + 5) % len(rightly)])
    adversarial = (int(splits().test.labels[target]) + 1 + number % (CLASSES - 1)) % CLASSES
    return Targets.of(splits().test, [target], adversarial), random_bases(splits().train, adversarial, poisons, number)


def backdoor(number, place="random"):
    return Backdoor(random_patch(3, 5, number), number % CLASSES, (number + 1 + number // 4) % CLASSES, place)


def victim(poisoned, **options):
    """Who trains a new head on the attacker's features, on poisoned data."""
    return train_victim(trained(), poisoned.poison(splits()), poisoned.aim, HEAD, scenario="transfer", **options)


@cache
def clean_victim():
    """The same on clean data; whom it is asked about doesn't matter to its training."""
    return train_victim(trained(), splits(), trial(0)[0], HEAD, scenario="transfer")


def control(poisoned):
    """How the clean victim answers."""
    return ask(clean_victim().model, poisoned.aim, splits().test, HEAD.seed)


def tiny_net(seed=0, dropout=0.0, classes=3):
    """Smooth, so that finite differences are good, and small, so that they are quick."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten()]
    if dropout:
        layers.append(nn.Dropout(dropout))
    model = nn.Sequential(*layers, nn.Linear(4 * 36, 5), nn.Tanh(), nn.Linear(5, classes))
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
    return model.eval()


def tiny_examples(n=24, seed=0, classes=3):
    pixels = torch.randint(256, (n, 3, 8, 8), generator=torch.Generator().manual_seed(seed)) / 255
    return Examples.of(pixels, torch.arange(n) % classes, ids=torch.arange(n) * 7 + 3)


def tiny_case(poisons=5, adversarial=1):
    train, test = tiny_examples(), tiny_examples(6, seed=1)
    bases = (train.labels == adversarial).nonzero().flatten()[:poisons]
    return train, Targets.of(test, [0], adversarial), bases
