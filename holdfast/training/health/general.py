"""Checks of any result: against chance, against the majority class, against plain training."""

from __future__ import annotations

import math

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.training.evaluation.criteria import criterion_uses_groups
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import accuracy_of
from holdfast.training.health.check import Check, Finding

CHANCE = Check(
    "chance",
    2.0,
    0.0,
    "below",
    "a model that guesses has a mean class accuracy of one over the number of classes; two standard errors of the test "
    "set separate it from luck",
    "train longer (--epochs); if plain training (--method erm) does better then, look at what the method inferred",
)
MAJORITY = Check(
    "majority class",
    0.0,
    None,
    "below",
    "always answering the most frequent class needs no model; a method may give up average for the worst group, so "
    "this only doubts",
    "look at the classes' accuracies; train longer, or balance classes",
)
WORST_GROUP = Check(
    "worst group",
    0.0,
    -2.0,
    "below",
    "a group that is right less often than by guessing follows a shortcut; two standard errors separate it from luck",
    "train longer, or the method did not reach its aim here: try another one, or group labels",
)
REFERENCE = Check(
    "plain training",
    -0.02,
    -0.05,
    "below",
    "two points are what seeds commonly differ by on sets of this size, five are not",
    "use the plain model, or another method",
)


CRITERION = Check(
    "choice of the epoch",
    20,
    None,
    "below",
    "the accuracy of a group of fewer than 20 validation examples has a standard error of up to 11 points, so the "
    "largest of many epochs is chosen by luck",
    "gather more validation examples of that group, or choose by accuracy or worst_class (--select-by)",
)


def above_chance(report: GroupReport) -> Finding:
    """The mean class accuracy in standard errors above guessing."""
    scores = [score for score in report.by_class if score.count]
    chance = 1 / len(scores)
    mean = sum(accuracy_of(score) for score in scores) / len(scores)
    error = math.sqrt(sum(chance * (1 - chance) / score.count for score in scores)) / len(scores)
    distance = math.inf if error == 0 else (mean - chance) / error
    where = "below" if mean < chance else "hardly above" if distance < CHANCE.doubtful else "above"
    return CHANCE.finding(
        distance, f"its mean class accuracy of {100 * mean:.1f} % is {where} that of guessing, {100 * chance:.1f} %"
    )


def above_majority(report: GroupReport) -> Finding:
    """The accuracy against that of always answering the test set's most frequent class."""
    counts = [score.count for score in report.by_class]
    share = max(counts) / sum(counts)
    return MAJORITY.finding(
        report.accuracy - share,
        f"{100 * report.accuracy:.1f} % are right, and always answering the most frequent class gets "
        f"{100 * share:.1f} %",
    )


def worst_group(report: GroupReport) -> Finding:
    """The worst group in standard errors above guessing."""
    worst, chance = report.worst, 1 / sum(1 for score in report.by_class if score.count)
    error = math.sqrt(chance * (1 - chance) / worst.count)
    distance = math.inf if error == 0 else (report.worst_accuracy - chance) / error
    return WORST_GROUP.finding(
        distance,
        f"{100 * report.worst_accuracy:.1f} % of its worst group ({worst.name}) are right, where guessing gets "
        f"{100 * chance:.1f} %",
    )


def against_reference(report: GroupReport, reference: GroupReport) -> Finding:
    """The worst group against that of a plain training on the same test set, see `check_reference`."""
    gain = report.worst_accuracy - reference.worst_accuracy
    return REFERENCE.finding(
        gain,
        f"its worst group has {100 * report.worst_accuracy:.1f} % and that of the reference "
        f"{100 * reference.worst_accuracy:.1f} %",
    )


def chosen_by(select_by: str, validation: GroupReport, *, needs_groups: bool) -> Finding:
    """What the epoch was chosen by: the smallest count that decided, and whether it read labels the method lacks.

    Args:
        select_by: the criterion.
        validation: on which it was computed.
        needs_groups: whether the method is one that has group labels.
    """
    reads = criterion_uses_groups(select_by) and validation.grouping != "classes"
    parts = validation.by_group if reads else validation.by_class if select_by == "worst_class" else ()
    smallest = min((score.count for score in parts if score.count), default=validation.count)
    told = " (it also reads group labels, which the method itself does not need)" if reads and not needs_groups else ""
    part = f"smallest validation {'group' if reads else 'class'}" if parts else "validation set"
    return CRITERION.finding(
        smallest,
        f"the epoch was chosen by {select_by}, and the {part} that decides it has {smallest:,} "
        f"example{'s' * (smallest != 1)}{told}",
    )


def check_reference(reference: GroupReport, test: Examples) -> None:
    """Refuse a reference that was judged on other examples; asked before anything is trained.

    Raises:
        ConfigError: if the groups or their sizes differ.
    """
    expected = GroupReport.of(test.labels, test).fold()
    ours, theirs = (sorted((score.name, score.count) for score in one.by_group) for one in (expected, reference))
    same = ours == theirs or reference.folded is not None  # of very many groups a record has only some
    if not same or expected.count != reference.count:
        raise ConfigError(
            f"the reference was judged on {reference.count:,} examples in {len(theirs)} {reference.grouping}, and this "
            f"run's test set has {expected.count:,} in {len(ours)}, or other ones; give a run on the same data"
        )
