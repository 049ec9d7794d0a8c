"""Who was dropped, one by one: the list that a person goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from holdfast.data.examples import Examples
from holdfast.poisoning.epic import Drop


@dataclass(frozen=True)
class Suspect:
    """An example that stood alone.

    Attributes:
        id: of the example.
        position: in the training set.
        label: its class.
        epoch: when it was dropped.
        size: of the cluster that it was the medoid of.
        loss: of the example then.
        predicted: what it was taken for then.
    """

    id: int
    position: int
    label: int
    epoch: int
    size: int
    loss: float
    predicted: int

    @property
    def mistaken(self) -> bool:
        """Whether it was taken for another class."""
        return self.predicted != self.label


def suspects(drops: Sequence[Drop], examples: Examples) -> list[Suspect]:
    """All that were dropped: those that went first before others, by falling loss within a round.

    Args:
        drops: EPIC's rounds.
        examples: the training set.
    """
    order = torch.argsort(examples.ids)
    listed = list[Suspect]()
    for drop in drops:
        places = order[torch.searchsorted(examples.ids[order], drop.ids)]
        columns = (drop.ids, places, drop.classes, drop.sizes, drop.losses, drop.predicted)
        for identity, place, label, size, loss, predicted in zip(*(part.tolist() for part in columns), strict=True):
            listed.append(Suspect(identity, place, label, drop.epoch, size, loss, predicted))
    return sorted(listed, key=lambda one: (one.epoch, -one.loss))
