"""How well inferred clusters match the true groups, and which epoch separates best.

As SPARE's groups are judged (Section 9.4.6 and Tables 9.11 and 9.12 of the dissertation,
https://escholarship.org/uc/item/0399v1qw): within each class the largest inferred cluster is taken for the majority and
all others together for the minority, and this is compared with the true majority attribute. The score by which an
inference epoch is chosen on a validation set with groups counts the recall of the majority too: the recall of
minorities alone is perfect where a majority was split and declared a minority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import DataError


@dataclass(frozen=True)
class ClassInferenceQuality:
    """The examples of one class by true and inferred side.

    Attributes:
        majority: the attribute of the true majority.
        true_positives: minority taken for minority.
        false_negatives: minority taken for majority.
        false_positives: majority taken for minority.
        true_negatives: majority taken for majority.
    """

    majority: int
    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int

    @property
    def precision(self) -> float | None:
        """Share of true minority in the inferred one; 0 if none was inferred, None if there is none to find either."""
        inferred = self.true_positives + self.false_positives
        return self.true_positives / inferred if inferred else (0.0 if self.false_negatives else None)

    @property
    def recall(self) -> float | None:
        """Share of the true minority that was inferred; None where there is none."""
        return (
            self.true_positives / (self.true_positives + self.false_negatives)
            if self.true_positives + self.false_negatives
            else None
        )

    @property
    def majority_recall(self) -> float | None:
        """Share of the true majority that was taken for it; None where there is none."""
        return (
            self.true_negatives / (self.true_negatives + self.false_positives)
            if self.true_negatives + self.false_positives
            else None
        )


@dataclass(frozen=True, eq=False)
class InferenceQuality:
    """Inferred clusters against true groups.

    Attributes:
        confusion: how many examples of each true group are in each inferred one, int64 of shape (true, inferred).
        true_groups: (class, attribute) of each row.
        inferred_groups: (class, cluster) of each column.
        classes: the two-way comparison of each class.
    """

    confusion: Tensor
    true_groups: tuple[tuple[int, int], ...]
    inferred_groups: tuple[tuple[int, int], ...]
    classes: Mapping[int, ClassInferenceQuality]

    @property
    def mean_precision(self) -> float | None:
        """Mean over the classes of the minority's precision."""
        return _mean(quality.precision for quality in self.classes.values())

    @property
    def min_precision(self) -> float | None:
        """Smallest precision of a class's minority."""
        return _least(quality.precision for quality in self.classes.values())

    @property
    def mean_recall(self) -> float | None:
        """Mean over the classes of the minority's recall."""
        return _mean(quality.recall for quality in self.classes.values())

    @property
    def min_recall(self) -> float | None:
        """Smallest recall of a class's minority."""
        return _least(quality.recall for quality in self.classes.values())

    @property
    def accuracy(self) -> float:
        """Share of all examples that are on the right side, minority or majority."""
        right = sum(quality.true_positives + quality.true_negatives for quality in self.classes.values())
        return right / int(self.confusion.sum())

    @property
    def separation(self) -> float:
        """The smallest recall of a class's minority or majority."""
        recalls = [recall for quality in self.classes.values() for recall in (quality.recall, quality.majority_recall)]
        least = _least(recalls)
        assert least is not None
        return least

    @property
    def rank(self) -> tuple[float, float]:
        """What an inference epoch is chosen by: separation first, then the smallest precision."""
        return self.separation, self.min_precision or 0.0


def judge_groups(
    clusters: Tensor, labels: Tensor, attributes: Tensor, majority: Mapping[int, int] | None = None
) -> InferenceQuality:
    """Compare inferred clusters with true attributes, class by class.

    Args:
        clusters: inferred cluster or group of each example, int64 of shape (n,). Clusters that reach across classes,
            such as a two-way split of the whole set, are cut along the classes first.
        labels: class of each example, int64 of shape (n,).
        attributes: true attribute of each example, int64 of shape (n,).
        majority: attribute of the majority by class; by default the most frequent, the smallest on ties.

    Returns:
        The comparison.

    Raises:
        DataError: if lengths disagree, there are no examples, or a class has no majority attribute.

    Example:
        >>> import torch
        >>> judged = judge_groups(torch.tensor([0, 0, 0, 1]), torch.zeros(4, dtype=int), torch.tensor([0, 0, 1, 1]))
        >>> judged.classes[0].precision, judged.classes[0].recall
        (1.0, 0.5)
    """
    if not len(clusters) == len(labels) == len(attributes) or len(labels) == 0:
        raise DataError(
            f"there are {len(clusters)} clusters, {len(labels)} labels and {len(attributes)} attributes; "
            "give one of each per example, and at least one example"
        )
    true_groups, rows = _cells(labels, attributes)
    inferred_groups, columns = _cells(labels, clusters)
    shape = true_groups.shape[1], inferred_groups.shape[1]
    confusion = torch.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).view(shape)
    classes = {}
    for label in torch.unique(labels).tolist():
        mine, theirs = true_groups[0] == label, inferred_groups[0] == label
        counts, values = confusion[mine][:, theirs], true_groups[1][mine]
        if majority is not None and label not in majority:
            raise DataError(f"the majority attribute of class {label} is missing; give one for every class")
        attribute = int(values[counts.sum(1).argmax()]) if majority is None else majority[label]
        truly, taken = values == attribute, torch.arange(counts.shape[1]) == counts.sum(0).argmax()
        classes[label] = ClassInferenceQuality(
            majority=attribute,
            true_positives=int(counts[~truly][:, ~taken].sum()),
            false_negatives=int(counts[~truly][:, taken].sum()),
            false_positives=int(counts[truly][:, ~taken].sum()),
            true_negatives=int(counts[truly][:, taken].sum()),
        )
    return InferenceQuality(confusion, _pairs(true_groups), _pairs(inferred_groups), classes)


def best_epoch(ranks: Mapping[int, tuple[float, float]]) -> int:
    """The epoch at which clusters separate best; the earliest on ties.

    Args:
        ranks: `InferenceQuality.rank` of what was inferred on the validation set, by epoch.

    Returns:
        The epoch.
    """
    if not ranks:
        raise DataError("no epoch was judged; give at least one")
    return max(ranks, key=lambda epoch: (ranks[epoch], -epoch))


def _cells(labels: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs (class, part) that occur, (2, pairs), and which of them each example is in."""
    names, codes = torch.unique(parts, return_inverse=True)
    present, cell = torch.unique(labels * len(names) + codes, return_inverse=True)
    return torch.stack([present // len(names), names[present % len(names)]]), cell


def _pairs(groups: Tensor) -> tuple[tuple[int, int], ...]:
    return tuple((int(label), int(part)) for label, part in groups.T)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _least(values: Iterable[float | None]) -> float | None:
    return min(_known(values), default=None)
