"""Which visible things does a model lean on? Accuracy with and without an attribute, per class, ranked.

Yang et al. (ICML 2023, https://arxiv.org/abs/2304.03916), equation 7.7 of the dissertation
(https://escholarship.org/uc/item/0399v1qw): the discrepancy of an attribute is the accuracy of a class's images that
show it minus that of those that don't. Any classifier can be looked at. A large discrepancy is a hint and no proof:
yellow helps to recognise a taxi and is part of it. With thousands of words some will stand out by chance, so look at
the interval and at the images before you call one spurious.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.primitives.proportions import wilson

Order = Literal["delta", "mutual_information"]

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Finding:
    """How much the accuracy on a class depends on an attribute.

    Attributes:
        label: the class.
        word: the attribute.
        support: images of the class that show it.
        absent: images that don't.
        correct_with: of those that show it, how many were right.
        correct_without: of those that don't.
        mutual_information: between showing it and being wrong, in nats.
        confused: what images of the class are most often taken for; None if none ever is.
    """

    label: int
    word: str
    support: int
    absent: int
    correct_with: int
    correct_without: int
    mutual_information: float
    confused: int | None

    @property
    def accuracy_with(self) -> float:
        """Accuracy on images that show the attribute."""
        return self.correct_with / self.support

    @property
    def accuracy_without(self) -> float:
        """Accuracy on images that don't."""
        return self.correct_without / self.absent

    @property
    def delta(self) -> float:
        """The discrepancy: accuracy with minus accuracy without (equation 7.7)."""
        return self.accuracy_with - self.accuracy_without

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the discrepancy, by Newcombe's method 10: Wilson's intervals of both shares combined."""
        with_low, with_high = wilson(self.correct_with, self.support)
        without_low, without_high = wilson(self.correct_without, self.absent)
        below = np.hypot(self.accuracy_with - with_low, without_high - self.accuracy_without)
        above = np.hypot(with_high - self.accuracy_with, self.accuracy_without - without_low)
        return max(-1.0, self.delta - float(below)), min(1.0, self.delta + float(above))

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values, the derived ones included."""
        return {
            **self.__dict__,
            "accuracy_with": self.accuracy_with,
            "accuracy_without": self.accuracy_without,
            "delta": self.delta,
            "interval": list(self.interval),
        }


def rank_attributes(
    attributes: Attributes,
    labels: _Ints,
    predicted: _Ints,
    *,
    min_support: int = 10,
    top: int = 5,
    order: Order = "delta",
) -> list[Finding]:
    """The attributes that the accuracy on a class depends on most, over all classes.

    Args:
        attributes: what each image shows.
        labels: class of each image, int64 of shape (n,).
        predicted: what the model said, int64 of shape (n,).
        min_support: an attribute counts for a class if at least this many of its images show it.
        top: how many attributes of a class are kept.
        order: by what they are chosen within a class: discrepancy, or mutual information as the authors' program does.

    Returns:
        Findings with a positive discrepancy and mutual information, the largest discrepancy first.

    Raises:
        DataError: if lengths disagree.
        ConfigError: if an option makes no sense.
    """
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    if labels.shape != predicted.shape or labels.shape != (len(attributes.present),):
        raise DataError(
            f"there are {len(attributes.present)} images, labels of shape {labels.shape} and predictions of shape "
            f"{predicted.shape}; give one of each per image"
        )
    if min_support < 1 or top < 1:
        raise ConfigError(f"min_support is {min_support} and top {top}; give at least 1 of each")
    if order not in get_args(Order):
        raise ConfigError(f"attributes can't be ordered by {order!r}" + nearest(order, get_args(Order)))
    findings: list[Finding] = []
    for label in np.unique(labels).tolist():
        rows = labels == label
        of_class = discrepancies(attributes.words, attributes.present[rows], predicted[rows], label, min_support)
        of_class = [one for one in of_class if one.delta > 0 and one.mutual_information > 0]
        findings += sorted(of_class, key=lambda one: -float(getattr(one, order)))[:top]
    return sorted(findings, key=lambda one: -one.delta)


def discrepancies(
    words: Sequence[str], present: _Bools, predicted: _Ints, label: int, min_support: int = 10
) -> list[Finding]:
    """Every attribute of the images of one class that has support, in the order of the words.

    Args:
        words: a name per attribute.
        present: which image shows what, bool of shape (n, words).
        predicted: what the model said of each, int64 of shape (n,).
        label: their class.
        min_support: leave out attributes that fewer images show, and those that all images show.

    Returns:
        The findings.
    """
    correct = predicted == label
    support, with_correct = present.sum(0), (present & correct[:, None]).sum(0)
    absent, without_correct = len(present) - support, correct.sum() - with_correct
    counts = np.stack([support - with_correct, with_correct, absent - without_correct, without_correct])
    information = mutual_information(counts.reshape(2, 2, len(words)))
    confused = None if correct.all() else int(np.bincount(predicted[~correct]).argmax())
    return [
        Finding(
            label,
            words[w],
            int(support[w]),
            int(absent[w]),
            int(with_correct[w]),
            int(without_correct[w]),
            float(information[w]),
            confused,
        )
        for w in np.flatnonzero((support >= min_support) & (absent > 0)).tolist()
    ]


def mutual_information(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Mutual information of two variables from their counts, in nats.

    Args:
        counts: (values of one, values of the other, ...).

    Returns:
        Of the remaining shape; 0 for independent variables, never below.
    """
    joint = np.asarray(counts, float) / np.maximum(np.sum(counts, (0, 1)), 1)
    independent = joint.sum(0, keepdims=True) * joint.sum(1, keepdims=True)
    ratio = np.divide(joint, independent, out=np.ones_like(joint), where=joint > 0)
    information: NDArray[np.float64] = np.maximum((joint * np.log(ratio)).sum((0, 1)), 0.0)
    return information
