"""How every group fares: counts, accuracies with intervals, each named average, and the worst.

"Average accuracy" means three things in the literature (the test set's own mix, the training mix, every group alike),
so each has its name here and they are shown together. Groups may be disjoint, may overlap as the identities of
CivilComments do (an example with two tags counts in both groups), or be unknown, in which case the classes stand in for
them and the report says so. Two reports on the same examples can be compared by a paired bootstrap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from rich.table import Table
from torch import Tensor

from holdfast.data.examples import Examples, IntVector
from holdfast.data.own.words import some
from holdfast.errors import DataError
from holdfast.training.evaluation.confusion import Confusion
from holdfast.training.evaluation.drawing import report_table
from holdfast.training.evaluation.folding import Folded, deciles, ends, is_large
from holdfast.training.evaluation.paired import Comparison, Outcomes, paired_comparison
from holdfast.training.evaluation.scores import GroupScore, accuracy_of, lowest

Grouping = Literal["groups", "overlapping groups", "classes"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_FEW = 10
_TOTALS = ("count", "correct")


@dataclass(frozen=True)
class GroupReport:
    """Counts of right and wrong predictions by group and by class, and what follows from them.

    Build one with `GroupReport.of` or `GroupReport.of_arrays`. Accuracies are fractions; `table` shows percents.

    Attributes:
        grouping: what `by_group` is over: ``"groups"``, ``"overlapping groups"``, or ``"classes"`` where no groups are
            known.
        count: how many examples were judged.
        correct: how many of them were right.
        by_group: the score of each group, also of those without examples.
        by_class: the score of each class.
        predicted: how often each class was predicted in each group; see `confusion`.
        outcomes: what `compare` needs, where it was kept.
        folded: of a report that has only the worst and the best of very many groups, what is known of the others.

    Example:
        >>> report = GroupReport.of_arrays([0, 0, 1, 1], labels=[0, 0, 1, 0], groups=[0, 0, 1, 2])
        >>> report.worst.name, report.accuracy, report.group_mean
        ('g2', 0.75, 0.6666666666666666)
    """

    grouping: Grouping
    count: int
    correct: int
    by_group: tuple[GroupScore, ...]
    by_class: tuple[GroupScore, ...]
    predicted: Confusion
    outcomes: Outcomes | None = field(default=None, compare=False, repr=False)
    folded: Folded | None = None

    @classmethod
    def of(
        cls,
        predicted: IntVector,
        examples: Examples,
        train: Examples | None = None,
        *,
        keep_outcomes: bool = True,
    ) -> GroupReport:
        """Judge predictions on `examples`, by their memberships, else their groups, else their classes.

        Args:
            predicted: the predicted class of each example, (n,).
            examples: what was predicted.
            train: the training set, whose counts give the training mix; groups are matched by name.
            keep_outcomes: keep what `compare` needs, about six bytes per example.

        Returns:
            The report.

        Raises:
            DataError: if lengths disagree, there are no examples, or the training set has other groups.
        """
        return cls.of_arrays(
            predicted,
            examples.labels,
            examples.groups,
            memberships=examples.memberships,
            ids=examples.ids,
            class_names=examples.class_names,
            group_names=examples.group_names,
            train_counts=None if train is None else _train_counts(examples, train),
            keep_outcomes=keep_outcomes,
        )

    @classmethod
    def of_arrays(
        cls,
        predicted: IntVector,
        labels: IntVector,
        groups: IntVector | None = None,
        *,
        memberships: Tensor | npt.NDArray[Any] | None = None,
        ids: IntVector | None = None,
        class_names: Sequence[str] = (),
        group_names: Sequence[str] = (),
        train_counts: Mapping[str, int] | Sequence[int] | None = None,
        keep_outcomes: bool = True,
    ) -> GroupReport:
        """Judge predictions given as plain vectors; see `of`.

        Args:
            predicted: the predicted class of each example, (n,).
            labels: its class, (n,).
            groups: its group, (n,); the classes where neither this nor `memberships` is given.
            memberships: bool matrix (n, groups) of groups that overlap; goes before `groups`.
            ids: stable names of the examples, (n,), by which `compare` sees that two reports are on the same ones.
            class_names: a name per class.
            group_names: a name per group.
            train_counts: training examples per group, by name or in order; groups that only these know are added.
            keep_outcomes: keep what `compare` needs.

        Returns:
            The report.
        """
        y = _vector("labels", labels)
        guess = _vector("predictions", predicted, len(y))
        if not len(y):
            raise DataError("there are no examples to report on; give at least one prediction")
        classes = _named(class_names, int(max(y.max(), guess.max())) + 1, "y")
        rows = np.arange(len(y))
        fingerprint = _digest(rows if ids is None else _vector("ids", ids, len(y)), y)
        grouping: Grouping
        if memberships is not None:
            member = np.asarray(torch.as_tensor(memberships).cpu(), dtype=np.bool_)
            if member.ndim != 2 or len(member) != len(y) or not member.any():
                raise DataError(
                    f"memberships have shape {member.shape} and {member.sum()} true entries for {len(y)} examples; "
                    "give a row per example, a column per group, and someone in a group"
                )
            rows, cells = np.nonzero(member)
            grouping, names = "overlapping groups", _named(group_names, member.shape[1], "g")
        elif groups is not None:
            cells = _vector("groups", groups, len(y))
            grouping, names = "groups", _named(group_names, int(cells.max()) + 1, "g")
        else:
            cells = y
            grouping, names = "classes", list(classes)
        names, in_train = _with_train(names, train_counts)
        right = guess == y
        return cls(
            grouping=grouping,
            count=len(y),
            correct=int(right.sum()),
            by_group=_scores(names, cells, right[rows], in_train),
            by_class=_scores(classes, y, right),
            predicted=Confusion.of(cells, guess[rows], (len(names), len(classes))),
            outcomes=Outcomes.pack(right, rows, cells, fingerprint) if keep_outcomes else None,
        )

    @property
    def worst(self) -> GroupScore:
        """The group with the lowest accuracy, the first of equals; groups without examples don't count."""
        return lowest(self.by_group)

    @property
    def worst_accuracy(self) -> float:
        """Accuracy of the worst group."""
        return accuracy_of(self.worst)

    @property
    def worst_class(self) -> GroupScore:
        """The class with the lowest accuracy, the first of equals."""
        return lowest(self.by_class)

    @property
    def accuracy(self) -> float:
        """Share of all examples that was right: weighted by the test mix."""
        return self.correct / self.count

    @property
    def group_mean(self) -> float:
        """Mean of the groups' accuracies, every group alike."""
        if self.folded is not None:
            return self.folded.group_mean
        known = [accuracy_of(score) for score in self.by_group if score.count]
        return sum(known) / len(known)

    @property
    def train_mix(self) -> float | None:
        """Group accuracies weighted by the groups' training counts, the "adjusted average" of Waterbirds.

        None where training counts are unknown or groups overlap. Groups without examples here are left out.
        """
        if self.folded is not None:
            return self.folded.train_mix
        if self.grouping == "overlapping groups":
            return None
        weighted = [(score.train_count, accuracy_of(score)) for score in self.by_group if score.count]
        known = [(weight, accuracy) for weight, accuracy in weighted if weight is not None]
        total = sum(weight for weight, _ in known)
        if len(known) < len(weighted) or total == 0:
            return None
        return sum(weight * accuracy for weight, accuracy in known) / total

    @property
    def averages(self) -> dict[str, float | None]:
        """The averages under names that say how groups are weighted."""
        return {"test mix": self.accuracy, "train mix": self.train_mix, "group mean": self.group_mean}

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """How often each class was predicted in each group, (groups, classes)."""
        return self.predicted.dense()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers, in sentences."""
        sentences = []
        if self.grouping == "classes":
            sentences.append("No groups are known: classes stand in for them.")
        empty = [score.name for score in self.by_group if not score.count]
        if empty:
            sentences.append(f"Without examples here, and so in no average and never the worst: {some(empty, 8)}.")
        few = [score.name for score in self.by_group if 0 < score.count < _FEW]
        if few:
            sentences.append(f"Fewer than {_FEW} examples, mind the interval: {some(few, 8)}.")
        return tuple(sentences)

    def compare(self, other: GroupReport, *, seed: int = 0, draws: int = 2000, level: float = 0.95) -> Comparison:
        """How this report differs from another on the same examples, with paired bootstrap intervals.

        Examples are drawn with replacement, and both reports are judged on the same draw, so what is easy for both
        cancels; see `holdfast.training.evaluation.paired`.

        Args:
            other: a report on the same examples.
            seed: decides the draws.
            draws: how many.
            level: probability that an interval is meant to cover.

        Returns:
            The differences, this report minus the other.

        Raises:
            DataError: if either report kept no outcomes, or they are on other examples or groups.
        """
        ours, theirs, rows, groups = self._paired_with(other)
        filled = np.array([score.count > 0 for score in self.by_group])
        names = [score.name for score in self.by_group if score.count]
        numbers = filled.cumsum() - 1
        return paired_comparison(ours, theirs, rows, numbers[groups], names, seed=seed, draws=draws, level=level)

    def fold(self) -> GroupReport:
        """The report as it is told after every epoch: of very many groups or classes, those at both ends."""
        if self.folded is not None or not is_large(len(self.by_group), len(self.by_class)):
            return self
        about = Folded(len(self.by_group), len(self.by_class), self.group_mean, self.train_mix, deciles(self.by_group))
        by_group, by_class = ends(self.by_group), ends(self.by_class)
        return GroupReport(self.grouping, self.count, self.correct, by_group, by_class, Confusion.empty(), folded=about)

    def to_json(self, *, outcomes: bool = False) -> dict[str, Any]:
        """The report as plain values.

        Args:
            outcomes: also give what `compare` needs, about eight characters per example.

        Returns:
            A dict that `json.dumps` takes and `from_json` reads; what can be derived is in it for other readers.
        """
        stored = {
            "grouping": self.grouping,
            "count": self.count,
            "correct": self.correct,
            "worst": self.worst.name,
            "worst_accuracy": self.worst_accuracy,
            "averages": self.averages,
            "groups": [score.to_json() for score in self.by_group],
            "classes": [score.to_json() for score in self.by_class],
            "predicted": self.predicted.to_json(),
            "notes": list(self.notes),
        }
        if self.folded is not None:
            stored["folded"] = asdict(self.folded)
        if outcomes and self.outcomes is not None:
            stored["outcomes"] = self.outcomes.to_json()
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> GroupReport:
        """The report that `to_json` described.

        Args:
            stored: what `to_json` gave.

        Returns:
            An equal report.

        Raises:
            DataError: if an entry is missing or makes no sense.
        """

        def scores(key: str) -> tuple[GroupScore, ...]:
            return tuple(GroupScore.from_json(one) for one in stored[key])

        try:
            if stored["grouping"] not in get_args(Grouping):
                raise ValueError(stored["grouping"])
            groups, classes = scores("groups"), scores("classes")
            folded = Folded.from_json(stored["folded"]) if "folded" in stored else None
            shape = (len(groups), len(classes)) if folded is None else (0, 0)
            everybody = GroupScore.from_json({"name": "all", "train_count": None, **{k: stored[k] for k in _TOTALS}})
            if not any(score.count for score in groups):
                raise ValueError("none of its groups has examples")
            return cls(
                grouping=stored["grouping"],
                count=everybody.count,
                correct=everybody.correct,
                by_group=groups,
                by_class=classes,
                predicted=Confusion.from_json(stored["predicted"], shape),
                outcomes=Outcomes.from_json(stored["outcomes"]) if "outcomes" in stored else None,
                folded=folded,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(
                f"this isn't a stored group report: {error!r}; give what GroupReport.to_json wrote"
            ) from error

    def table(self, title: str = "") -> Table:
        """The report for a terminal; see `holdfast.training.evaluation.drawing`."""
        return report_table(self, title)

    def _paired_with(self, other: GroupReport) -> tuple[_Bools, _Bools, _Ints, _Ints]:
        """Whether this report and the other were right, (n,) each, and the pairs (example, group)."""
        if self.outcomes is None or other.outcomes is None:
            raise DataError(
                "a comparison needs the outcome of every example and one of the reports kept none; "
                "make both with keep_outcomes=True and store them with to_json(outcomes=True)"
            )
        if [score.name for score in self.by_group] != [score.name for score in other.by_group]:
            raise DataError("the two reports have different groups; report both on the same groups to compare them")
        mine, their = self.outcomes, other.outcomes
        if (mine.digest, mine.memberships, mine.groups) != (their.digest, their.memberships, their.groups):
            raise DataError(
                "the two reports are on different examples, or on the same in another order or in other groups; "
                "predict the same set with both models to compare them"
            )
        right, rows, groups = mine.unpack()
        return right, their.unpack()[0], rows, groups


def _vector(what: str, values: IntVector, n: int | None = None) -> _Ints:
    vector = np.asarray(torch.as_tensor(values).cpu())
    if vector.ndim != 1 or (n is not None and len(vector) != n):
        wanted = "one integer" if n is None else f"one integer for each of {n} examples"
        hint = " (logits.argmax(-1))" if what == "predictions" and vector.ndim == 2 else ""
        raise DataError(f"{what} have shape {vector.shape}; give {wanted}{hint}")
    if vector.dtype.kind not in "iub" and len(vector):
        raise DataError(f"{what} are of type {vector.dtype}; give integers")
    if what != "ids" and len(vector) and vector.min() < 0:
        raise DataError(f"{what} contain {vector.min()} at position {int(vector.argmin())}; number them from 0")
    return vector.astype(np.int64)


def _named(names: Sequence[str], count: int, prefix: str) -> list[str]:
    """The names, continued by numbered ones up to `count`."""
    return [*names, *(f"{prefix}{i}" for i in range(len(names), count))]


def _scores(
    names: Sequence[str], cells: _Ints, right: _Bools, in_train: Sequence[int] | None = None
) -> tuple[GroupScore, ...]:
    counts = np.bincount(cells, minlength=len(names)).tolist()
    corrects = np.bincount(cells[right], minlength=len(names)).tolist()
    trained: Sequence[int | None] = [None] * len(names) if in_train is None else in_train
    return tuple(map(GroupScore, names, counts, corrects, trained))


def _train_counts(examples: Examples, train: Examples) -> Mapping[str, int] | Sequence[int] | None:
    """Training counts of the groups that `examples` are judged by, None where the training set doesn't know them."""
    if examples.memberships is not None:
        known = train.memberships is not None
    else:
        known = examples.groups is None or (train.groups is not None and train.memberships is None)
    if not known:
        return None
    if examples.memberships is None and examples.groups is None:
        here, there, counts = examples.class_names, train.class_names, train.class_counts().tolist()
    else:
        here, there, counts = examples.group_names, train.group_names, train.group_counts().tolist()
    if here == there:
        return list(counts)
    if not set(here) & set(there):
        raise DataError(
            f"the training set has the groups {some(there, 8)} and the examples have {some(here, 8)}; "
            "give both the same names"
        )
    return dict(zip(there, counts, strict=True))


def _with_train(
    names: list[str], counts: Mapping[str, int] | Sequence[int] | None
) -> tuple[list[str], list[int] | None]:
    """All groups that are known here or in training, and the training count of each."""
    if counts is None:
        return names, None
    if isinstance(counts, Mapping):
        every = [*names, *(name for name in counts if name not in names)]
        return every, [int(counts.get(name, 0)) for name in every]
    if len(counts) < len(names):
        raise DataError(f"there are {len(counts)} training counts for {len(names)} groups; give one per group")
    return _named(names, len(counts), "g"), [int(count) for count in counts]


def _digest(ids: _Ints, labels: _Ints) -> str:
    return hashlib.blake2b(ids.tobytes() + labels.tobytes(), digest_size=16).hexdigest()
