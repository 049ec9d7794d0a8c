"""What is kept of a report on very many groups: those at both ends, and how the others are spread.

A run tells how it fares after every epoch. With ten thousand classes a whole table would be a megabyte each time; from
`FOLDED_ABOVE` groups on, an epoch's record has the `KEPT` worst and the `KEPT` best, the deciles of the groups'
accuracies, and every average as it was with all groups. The whole table of the test set is in ``tables/``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.training.evaluation.scores import GroupScore, accuracy_of

#: Groups up to which a record has all of them.
FOLDED_ABOVE = 256
#: Groups that are kept at each end.
KEPT = 32


@dataclass(frozen=True)
class Folded:
    """What is known of groups that a report leaves out.

    Attributes:
        groups: how many groups there are.
        classes: how many classes.
        group_mean: mean of all groups' accuracies.
        train_mix: their mean weighted by training counts, where those are known.
        deciles: of all groups' accuracies, from the lowest to the highest, eleven numbers.
    """

    groups: int
    classes: int
    group_mean: float
    train_mix: float | None
    deciles: tuple[float, ...]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Folded:
        """What `dataclasses.asdict` gave.

        Raises:
            ValueError: if it makes no sense.
        """
        deciles = tuple(float(value) for value in stored["deciles"])
        if len(deciles) != 11 or list(deciles) != sorted(deciles):
            raise ValueError("its deciles are not eleven rising numbers")
        mix = stored["train_mix"]
        return cls(
            int(stored["groups"]),
            int(stored["classes"]),
            float(stored["group_mean"]),
            None if mix is None else float(mix),
            deciles,
        )


def is_large(groups: int, classes: int) -> bool:
    """Whether a report on so many is folded where it is told again and again."""
    return max(groups, classes) > FOLDED_ABOVE


def ends(scores: Sequence[GroupScore], kept: int = KEPT) -> tuple[GroupScore, ...]:
    """The worst and the best of the groups with examples, worst first, the first of equals first."""
    known = sorted((score for score in scores if score.count), key=accuracy_of)
    return tuple(known) if len(known) <= 2 * kept else (*known[:kept], *known[-kept:])


def deciles(scores: Sequence[GroupScore]) -> tuple[float, ...]:
    """How the accuracies of the groups with examples are spread: lowest, 10%, ..., highest."""
    known = [accuracy_of(score) for score in scores if score.count]
    return tuple(float(value) for value in np.quantile(known, np.linspace(0, 1, 11)))
