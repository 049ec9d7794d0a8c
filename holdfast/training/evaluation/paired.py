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

    def unpack(self, n_groups: int) -> tuple[_Bools, _Bools]:
        """Whether each example was right, (n,), and which groups it is in, (n, groups)."""
        correct = np.unpackbits(np.frombuffer(self.correct, np.uint8), count=self.n).astype(np.bool_)
        member = np.zeros((self.n, n_groups), np.bool_)
        rows = np.repeat(np.arange(self.n), np.frombuffer(self.memberships, "<u2"))
        member[rows, np.frombuffer(self.groups, "<u4")] = True
        return correct, member

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


def paired_comparison(
    ours: _Bools,
    theirs: _Bools,
    member: _Bools,
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
        member: which groups each example is in, (n, groups), every group having somebody.
        names: a name per group.
        seed: decides the draws.
        draws: how many.
        level: probability that an interval is meant to cover.

    Returns:
        The differences, ours minus theirs.
    """
    packed, counts = np.unique(np.packbits(np.column_stack([ours, theirs, member]), axis=1), axis=0, return_counts=True)
    kinds = np.unpackbits(packed, axis=1, count=2 + member.shape[1]).astype(np.bool_)
    stream = numpy_stream(seed, "paired bootstrap")
    drawn = np.ascontiguousarray(stream.multinomial(len(ours), counts / len(ours), size=draws).T)

    def shares(inside: _Bools) -> _Floats:
        """Our and their accuracy on the kinds `inside` in every draw, (2, draws); nan where a draw has none."""
        right = np.stack([drawn[inside & kinds[:, side]].sum(0) for side in (0, 1)])
        with np.errstate(invalid="ignore"):
            return np.asarray(right / drawn[inside].sum(0), dtype=np.float64)

    def difference(name: str, here: float, there: float, of_draws: _Floats) -> Difference:
        tail = (1 - level) / 2
        low, high = np.nanquantile(of_draws[0] - of_draws[1], [tail, 1 - tail])
        return Difference(name, here, there, float(low), float(high))

    by_group = [shares(kinds[:, 2 + group]) for group in range(len(names))]
    here = [float(ours[member[:, group]].mean()) for group in range(len(names))]
    there = [float(theirs[member[:, group]].mean()) for group in range(len(names))]
    everyone = shares(np.ones(len(kinds), np.bool_))
    return Comparison(
        accuracy=difference("accuracy", float(ours.mean()), float(theirs.mean()), everyone),
        worst=difference("worst group", min(here), min(there), np.fmin.reduce(np.stack(by_group))),
        by_group=tuple(map(difference, names, here, there, by_group)),
        level=level,
        draws=draws,
    )
