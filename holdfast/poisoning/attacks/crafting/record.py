"""From the result of a search to a poisoned set that remembers how it was made."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.poisoning.attacks.crafting.aims import Aim
from holdfast.poisoning.attacks.crafting.brewing import Brewed
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet


def poisoned_set(
    attack: Any, train: Examples, bases: Tensor, brewed: Brewed, *, aim: Aim, epsilon: float | None, seed: int
) -> PoisonedSet:
    """What an attack made, under its name and with its settings.

    Args:
        attack: a dataclass whose fields are its settings.
        train: the training set.
        bases: positions of the perturbed examples.
        brewed: the perturbations and how they were found.
        aim: what the attacker wants.
        epsilon: the budget, where it is a hard one.
        seed: of the search.

    Returns:
        The poisoned set.
    """
    return PoisonedSet(
        attack=type(attack).__name__,
        ids=train.ids[bases],
        perturbations=brewed.perturbations.cpu(),
        aim=aim,
        epsilon=epsilon,
        objective=brewed.objective,
        trace=brewed.trace,
        settings={**described(attack), "seed": seed},
    )


def described(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain values; what is no plain value is written out."""
    values = dict[str, Any]()
    for each in fields(settings):
        value = getattr(settings, each.name)
        if value is None or isinstance(value, (bool, int, float, str)):
            values[each.name] = value
        elif is_dataclass(value) and not isinstance(value, type):
            values[each.name] = described(value)
        else:
            values[each.name] = repr(value)
    return values
