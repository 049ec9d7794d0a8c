"""Equal shares of groups of unequal size: the smallest group first, whatever it leaves goes to the larger ones.

This is water-filling. There is a level such that groups below it are taken whole and all others give the level, or
one more; no other choice of the same size has a larger smallest share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError
from holdfast.streams import numpy_stream

Ints = NDArray[np.int64]

_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(?!\d|,)")


def quotas(sizes: Ints | Sequence[int], budget: int) -> Ints:
    """How many to take of each group: Algorithm 2 of the dissertation (S2L).

    Args:
        sizes: of the groups.
        budget: how many to take in all; everything is taken where there are fewer.

    Returns:
        int64, at most `sizes`, with sum min(budget, all).

    Example:
        >>> quotas([100, 2, 10], 20).tolist()
        [9, 2, 9]
    """
    most = np.asarray(sizes, np.int64)
    counts, left = np.zeros_like(most), budget
    for rank, group in enumerate(np.argsort(most, kind="stable")):
        counts[group] = min(int(most[group]), left // (len(most) - rank))
        left -= counts[group]
    return counts


def balanced(labels: Ints, budget: int, *, seed: int, smallest: int = 1) -> Ints:
    """Take equally many of every group, at random within each.

    Args:
        labels: group of each example, from 0; those with a negative one are never taken.
        budget: how many to take.
        seed: names the random streams, one for each group.
        smallest: groups of fewer examples are only drawn from when the others have too few.

    Returns:
        Positions, increasing, int64 of shape (min(budget, grouped),).
    """
    members = members_of(labels)
    sizes = np.array([len(places) for places in members.values()], np.int64)
    large = np.where(sizes >= smallest, sizes, 0)
    counts = quotas(large, budget)
    counts += quotas(sizes - large, budget - int(counts.sum()))
    taken = [
        places[numpy_stream(seed, "group", group).choice(len(places), count, replace=False)]
        for (group, places), count in zip(members.items(), counts, strict=True)
        if count
    ]
    return np.sort(np.concatenate([np.empty(0, np.int64), *taken]))


def members_of(labels: Ints) -> dict[int, Ints]:
    """Increasing positions of each group's examples, by its number; in one pass, however many groups there are.

    Args:
        labels: group of each example; those with a negative one are left out.
    """
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    groups, firsts = np.unique(labels[order], return_index=True)
    return dict(zip(groups.tolist(), np.split(order, firsts)[1:], strict=True))


def resolve_budget(budget: int | str, examples: int, name: str = "the budget") -> int:
    """A number of examples, from a number or a percentage.

    Args:
        budget: such as ``5000``, ``"5,000"`` or ``"50%"``; a comma parts thousands, and nothing else.
        examples: how many there are.
        name: what the number is called, for messages.

    Raises:
        ConfigError: if it is neither, or not from 1 to all of them.
    """
    text = str(budget).strip().replace("_", "")
    share = text.endswith("%")
    if _THOUSANDS.match(text):
        text = text.replace(",", "")
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    count = round(number / 100 * examples) if share and math.isfinite(number) else number
    if not 1 <= count <= examples or count != int(count):
        raise ConfigError(
            f"{name} is {budget!r} and there are {examples:,} examples; give a number from 1 to {examples}, or a "
            "percentage such as 50%"
        )
    return int(count)
