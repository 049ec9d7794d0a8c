"""Two models on the same examples, compared pair by pair: what is easy for both cancels.

Examples are drawn with replacement and both models are judged on the same draw (paired bootstrap). Drawing n examples
is drawing the counts of the few kinds of examples there are (by groups, right here, right there) from one multinomial,
which is exact and costs the same whatever n is.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.streams import numpy_stream

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

#: Numbers of a block of draws.
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Outcomes:
    """What happened to every example, packed: enough to compare two reports pair by pair.

    Attributes:
        n: how many examples.
        correct: a bit per example.
        memberships: for each example in turn, how many groups it is in.
        groups: the groups of each example, one after the other.
        digest: fingerprint of the examples' ids and labels, in order.
    """

    n: int
    correct: bytes
    memberships: bytes
    groups: bytes
    digest: str

    @classmethod
    def pack(cls, correct: _Bools, rows: _Ints, groups: _Ints, digest: str) -> Outcomes:
        """Pack a bool vector (n,) and the pairs (example, group), ordered by example."""
        return cls(
            n=len(correct),
            correct=np.packbits(correct).tobytes(),
            memberships=np.bincount(rows, minlength=len(correct)).astype("<u2").tobytes(),
            groups=groups.astype("<u4").tobytes(),
            digest=digest,
        )

    def unpack(self) -> tuple[_Bools, _Ints, _Ints]:
        """Whether each example was right, (n,), and the pairs (example, group), ordered by example."""
        correct = np.unpackbits(np.frombuffer(self.correct, np.uint8), count=self.n).astype(np.bool_)
        rows = np.repeat(np.arange(self.n), np.frombuffer(self.memberships, "<u2"))
        return correct, rows, np.frombuffer(self.groups, "<u4").astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """The outcomes as plain values; bytes as base64."""
        parts = {name: getattr(self, name) for name in ("correct", "memberships", "groups")}
        return {
            "n": self.n,
            "digest": self.digest,
            **{name: base64.b64encode(part).decode() for name, part in parts.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Outcomes:
        """What `to_json` gave."""
        parts = {name: base64.b64decode(stored[name]) for name in ("correct", "memberships", "groups")}
        return cls(n=stored["n"], digest=stored["digest"], **parts)


@dataclass(frozen=True)
class Difference:
    """One number of two reports, and how sure their difference is.

    Attributes:
        name: which number.
        ours: its value in the report that was asked.
        theirs: its value in the other report.
        low: lower end of the bootstrap interval of ours - theirs.
        high: its upper end.
    """

    name: str
    ours: float
    theirs: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """Two reports on the same examples, compared pair by pair.

    Attributes:
        accuracy: difference of the plain accuracies.
        worst: difference of the worst groups' accuracies, each report having its own worst group.
        by_group: difference per group that has examples.
        level: probability that an interval is meant to cover.
        draws: how many bootstrap draws the intervals stand on.
    """

    accuracy: Difference
    worst: Difference
    by_group: tuple[Difference, ...]
    level: float
    draws: int


@dataclass(frozen=True)
class _Kinds:
    """The kinds of examples there are.

    Attributes:
        counts: examples of each kind, (kinds,).
        right: whether we and whether they were right about them, (2, kinds).
        members: the kinds of each group, group by group, (pairs,).
        starts: where each group begins in `members`, (groups,).
    """

    counts: _Ints
    right: _Bools
    members: _Ints
    starts: _Ints


def paired_comparison(
    ours: _Bools,
    theirs: _Bools,
    rows: _Ints,
    groups: _Ints,
    names: Sequence[str],
    *,
    seed: int = 0,
    draws: int = 2000,
    level: float = 0.95,
) -> Comparison:
    """Differences in accuracy with bootstrap intervals: over all, of the worst groups, and by group.

    Args:
        ours: whether we were right about each example, (n,).
        theirs: whether they were, (n,).
        rows: with `groups` the pairs (example, group), ordered by example; every group has somebody.
        groups: see `rows`.
        names: a name per group.
        seed: decides the draws.
        draws: how many.
        level: probability that an interval is meant to cover.

    Returns:
        The differences, ours minus theirs.
    """
    kinds = _kinds(ours, theirs, rows, groups, len(names))
    stream, total = numpy_stream(seed, "paired bootstrap"), kinds.counts / len(ours)
    # Draws come in blocks, so that ten thousand groups take the memory of a few hundred draws.
    block = max(1, _AT_ONCE // len(kinds.counts))
    parts = [
        _shares(kinds, stream.multinomial(len(ours), total, size=min(block, draws - first)))
        for first in range(0, draws, block)
    ]
    everyone, worst, by_group = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))

    def difference(name: str, here: float, there: float, of_draws: npt.NDArray[Any]) -> Difference:
        tail = (1 - level) / 2
        low, high = np.nanquantile(of_draws, [tail, 1 - tail])
        return Difference(name, here, there, float(low), float(high))

    sizes = np.bincount(groups, minlength=len(names))
    here, there = (np.bincount(groups[side[rows]], minlength=len(names)) / sizes for side in (ours, theirs))
    return Comparison(
        accuracy=difference("accuracy", float(ours.mean()), float(theirs.mean()), everyone),
        worst=difference("worst group", float(here.min()), float(there.min()), worst),
        by_group=tuple(map(difference, names, here.tolist(), there.tolist(), by_group)),
        level=level,
        draws=draws,
    )


def _kinds(ours: _Bools, theirs: _Bools, rows: _Ints, groups: _Ints, n_groups: int) -> _Kinds:
    """Count the kinds; where groups are disjoint, no table of examples by groups is made."""
    if len(rows) == len(ours) and len(np.unique(rows)) == len(ours):
        # In the order of the table's rows below, so that draws are the same whichever way kinds are found.
        keys, counts = np.unique((2 * ours + theirs) * n_groups + (n_groups - 1 - groups), return_counts=True)
        right, last = np.divmod(keys, n_groups)
        member_kinds, member_groups = np.arange(len(keys)), n_groups - 1 - last
        sides = np.stack([right >= 2, right % 2 == 1])
    else:
        table = np.zeros((len(ours), 2 + n_groups), np.bool_)
        table[:, 0], table[:, 1] = ours, theirs
        table[rows, 2 + groups] = True
        packed, counts = np.unique(np.packbits(table, axis=1), axis=0, return_counts=True)
        kinds = np.unpackbits(packed, axis=1, count=2 + n_groups).astype(np.bool_)
        member_kinds, member_groups = np.nonzero(kinds[:, 2:])
        sides = kinds[:, :2].T
    order = np.argsort(member_groups, kind="stable")
    starts = np.searchsorted(member_groups[order], np.arange(n_groups))
    return _Kinds(counts, sides, member_kinds[order], starts)


def _shares(kinds: _Kinds, drawn: _Ints) -> tuple[_Floats, _Floats, npt.NDArray[np.float32]]:
    """Our accuracy minus theirs in every draw: over all, of each one's worst group, and by group (groups, draws)."""
    by_kind = np.ascontiguousarray(drawn.T)
    right = [by_kind * side[:, None] for side in kinds.right]
    sizes = _summed(kinds, by_kind)
    with np.errstate(invalid="ignore"):  # not a number where a draw has nobody of a group
        ours, theirs = (_summed(kinds, side) / sizes for side in right)
    everyone = (right[0].sum(0) - right[1].sum(0)) / drawn[0].sum()
    return everyone, np.fmin.reduce(ours) - np.fmin.reduce(theirs), (ours - theirs).astype(np.float32)


def _summed(kinds: _Kinds, by_kind: _Ints) -> _Ints:
    """Sums over the kinds of each group, (groups, draws)."""
    return np.asarray(np.add.reduceat(by_kind[kinds.members], kinds.starts), dtype=np.int64)
