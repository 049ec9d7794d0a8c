"""What a model is chosen by on the validation set, and which of these numbers read group labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from holdfast.errors import ConfigError, nearest
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import accuracy_of


def _worst_of_both(report: GroupReport) -> float:
    return min(report.worst_accuracy, accuracy_of(report.worst_class))


def _train_mix(report: GroupReport) -> float:
    if report.train_mix is None:
        raise ConfigError(
            "the criterion 'train_mix' needs training counts of disjoint groups and this report has none; "
            "give the training set's groups or choose by 'group_mean'"
        )
    return report.train_mix


def _class_difference(report: GroupReport) -> float:
    known = sorted(accuracy_of(score) for score in report.by_class if score.count)
    # In rising order the k-th is the larger one of k pairs and the smaller one of the others: no pair is gone through.
    gaps = math.fsum((2 * place - len(known) + 1) * accuracy for place, accuracy in enumerate(known))
    return -gaps / math.comb(len(known), 2) if len(known) > 1 else 0.0


#: What a model can be chosen by: how it is computed, larger being better, and whether it reads group labels.
_CRITERIA: Mapping[str, tuple[Callable[[GroupReport], float], bool]] = {
    "worst_group": (lambda report: report.worst_accuracy, True),
    "worst_class": (lambda report: accuracy_of(report.worst_class), False),
    "worst_group_or_class": (_worst_of_both, True),
    "accuracy": (lambda report: report.accuracy, False),
    "group_mean": (lambda report: report.group_mean, True),
    "train_mix": (_train_mix, True),
    "min_class_difference": (_class_difference, False),
}

#: The names of the criteria.
CRITERIA: tuple[str, ...] = tuple(_CRITERIA)


def criterion(report: GroupReport, name: str) -> float:
    """The number by which a model is chosen; larger is better.

    Args:
        report: on the validation set.
        name: ``worst_group``, ``worst_class``, ``worst_group_or_class`` (PDE's minimum over CivilComments' 16 groups
            and 2 classes), ``accuracy``, ``group_mean``, ``train_mix``, or ``min_class_difference`` (minus the mean
            gap between two classes' accuracies). On a report without groups, groups are the classes.

    Returns:
        The number.

    Raises:
        ConfigError: if the name is unknown or the report lacks what it needs.
    """
    return _known(name)[0](report)


def criterion_uses_groups(name: str) -> bool:
    """Whether a criterion reads group labels of the validation set, which some methods must do without.

    Args:
        name: as for `criterion`.
    """
    return _known(name)[1]


def _known(name: str) -> tuple[Callable[[GroupReport], float], bool]:
    if name not in _CRITERIA:
        raise ConfigError(f"there is no criterion {name!r} to choose a model by" + nearest(name, _CRITERIA))
    return _CRITERIA[name]
