"""Who is in which group, by each attribute and by several together; an example may be in several or in none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from holdfast.data.own.values import Coded
from holdfast.data.own.words import some
from holdfast.errors import DataError
from holdfast.training.evaluation.by_group.judged import Ints

#: Combinations up to which those without examples are listed too.
_LISTED = 256
#: More groups than this of one attribute are names or quantities.
_MOST = 5_000


@dataclass(frozen=True, eq=False)
class Attribute:
    """An attribute and who has which of its values.

    Attributes:
        name: of the attribute.
        levels: its values, as words; also those that nobody has.
        rows: the examples of each value, rising.
    """

    name: str
    levels: tuple[str, ...]
    rows: tuple[Ints, ...]

    @property
    def overlapping(self) -> bool:
        """Whether an example is in two of its groups."""
        every = np.concatenate(self.rows)
        return len(np.unique(every)) < len(every)

    @classmethod
    def of(cls, name: str, values: Any, n: int) -> Attribute:
        """An attribute out of a value per example, or a list of values per example; None is in no group.

        Args:
            name: of the attribute.
            values: (n,) words or whole numbers, or lists of them; a pandas Categorical's unused categories are kept. Or
                an `Attribute`, which is taken as it is.
            n: how many examples there are.

        Raises:
            DataError: if there is not an entry for each example, or nobody has a value.
        """
        if isinstance(values, Attribute):
            return values
        known = list(map(str, getattr(getattr(values, "cat", values), "categories", ())))
        cells = values.tolist() if hasattr(values, "tolist") else list(values)
        if len(cells) != n:
            raise DataError(f"the attribute {name!r} has {len(cells)} values for {n} examples; give one for each")
        members: dict[str, list[int]] = {level: [] for level in known}
        for row, cell in enumerate(cells):
            for word in dict.fromkeys(_words(cell)):
                members.setdefault(word, []).append(row)
        levels = known or sorted(members, key=_order)
        if not any(members.values()):
            raise DataError(f"the attribute {name!r} has no values; leave it out")
        rows = tuple(np.asarray(members[level], np.int64) for level in levels)
        return cls(str(name), tuple(levels), rows).bounded()

    @classmethod
    def of_codes(cls, name: str, coded: Coded) -> Attribute:
        """An attribute out of a number per example, as the reading layer gives columns.

        Raises:
            DataError: if it has very many values.
        """
        order = np.argsort(coded.codes, kind="stable")
        ends = np.searchsorted(coded.codes[order], np.arange(len(coded.names) + 1))
        rows = tuple(order[low:high] for low, high in pairwise(ends))
        return cls(name, coded.names, rows).bounded()

    def bounded(self) -> Attribute:
        """Itself, if it has no more values than groups make sense for.

        Raises:
            DataError: if it has.
        """
        if len(self.levels) > _MOST:
            raise DataError(
                f"the attribute {self.name!r} has {len(self.levels):,} different values; group them first, or cut "
                "numbers into ranges"
            )
        return self


@dataclass(frozen=True, eq=False)
class Family:
    """Groups by one attribute, or by several together.

    Attributes:
        attributes: their names.
        levels: the values of each group, one per attribute.
        rows: the examples of each group.
    """

    attributes: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    rows: tuple[Ints, ...]


def families(groups: Mapping[str, Any], n: int, depth: int) -> Iterator[Family]:
    """Every attribute, then every two together, up to `depth` of them.

    Raises:
        DataError: if an attribute makes no sense.
    """
    attributes = [Attribute.of(name, values, n) for name, values in groups.items()]
    for size in range(1, min(depth, len(attributes)) + 1):
        for chosen in combinations(attributes, size):
            yield _together(chosen)


def _together(attributes: Sequence[Attribute]) -> Family:
    names = tuple(attribute.name for attribute in attributes)
    listed = np.prod([float(len(one.levels)) for one in attributes]) <= _LISTED
    if len(attributes) > 1 and not listed and not any(one.overlapping for one in attributes):
        return Family(names, *_crossed(attributes))
    cells: list[tuple[tuple[str, ...], Ints]] = []
    every = product(*(zip(one.levels, one.rows, strict=True) for one in attributes))
    for combination in every:
        rows = combination[0][1]
        for _, others in combination[1:]:
            rows = np.intersect1d(rows, others, assume_unique=True)
        if listed or len(rows) or len(attributes) == 1:
            cells.append((tuple(level for level, _ in combination), rows))
    return Family(names, tuple(levels for levels, _ in cells), tuple(rows for _, rows in cells))


def _crossed(attributes: Sequence[Attribute]) -> tuple[tuple[tuple[str, ...], ...], tuple[Ints, ...]]:
    """The combinations that occur, of attributes that put each example into one group at most: no pair is tried."""
    n = 1 + max(int(rows[-1]) for one in attributes for rows in one.rows if len(rows))
    code, known = np.zeros(n, np.int64), np.ones(n, np.bool_)
    for one in attributes:
        of_one = np.full(n, -1)
        for level, rows in enumerate(one.rows):
            of_one[rows] = level
        code, known = code * len(one.levels) + of_one, known & (of_one >= 0)
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(code[rows], kind="stable")]
    codes, starts = np.unique(code[rows], return_index=True)
    places = np.unravel_index(codes, [len(one.levels) for one in attributes])
    levels = tuple(
        tuple(one.levels[place] for one, place in zip(attributes, cell, strict=True))
        for cell in zip(*places, strict=True)
    )
    return levels, tuple(np.split(rows, starts[1:])) if len(rows) else ()


def check_known(asked: Sequence[str], known: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The family that is asked for.

    Raises:
        DataError: if there is none.
    """
    if tuple(asked) not in known:
        raise DataError(f"there are no groups by {' and '.join(asked)}; there are {some(map(' and '.join, known), 8)}")
    return tuple(asked)


def _words(cell: Any) -> list[str]:
    cells = cell if isinstance(cell, (list, tuple, set, frozenset, np.ndarray)) else [cell]
    return [_word(one) for one in cells if one is not None and not (isinstance(one, float) and math.isnan(one))]


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _order(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return float("inf"), name
