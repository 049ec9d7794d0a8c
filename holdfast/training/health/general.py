"""Checks of any result: against chance, against the majority class, against plain training.

Plain training on the same data is the best yardstick, so where it is known chance is only a second one: a method that
has brought the worst group from 1 % to 40 % of two classes did its work, and the model is still not one to trust for
that group.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.training.evaluation.criteria import criterion_uses_groups
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.paired import Difference
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
STILL_WORST_GROUP = replace(WORST_GROUP, doubtful=-2.0, failed=None)
"""`WORST_GROUP` of a result that is clearly better than plain training: it only doubts, and not what may be luck."""

_POINTS = 0.02  # what seeds commonly differ by
AIM = Check(
    "plain training",
    0.0,
    -_POINTS,
    "below",
    "a method for the worst group that does not raise it has cost something for nothing; seeds commonly differ by two "
    "points and the same model by two standard errors of the test set, so a larger loss is none of chance",
    "use the plain model, or another method",
)
REFERENCE = Check(
    "plain training",
    -_POINTS,
    -0.05,
    "below",
    "two points are what seeds commonly differ by on sets of this size, five are not",
    "use the plain model, or another method",
)
_UNSEEN = "use the plain model, or name the groups that the method is for (--attribute), so that a gain for one is seen"

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


def worst_group(report: GroupReport, reference: GroupReport | None = None) -> Finding:
    """The worst group in standard errors above guessing.

    Args:
        report: how the groups fare.
        reference: how they fare by plain training, where that is known.
    """
    worst, chance = report.worst, 1 / sum(1 for score in report.by_class if score.count)
    error = math.sqrt(chance * (1 - chance) / worst.count)
    distance = math.inf if error == 0 else (report.worst_accuracy - chance) / error
    better = reference is not None and gain_over(report, reference).low > 0
    return (STILL_WORST_GROUP if better else WORST_GROUP).finding(
        distance,
        f"{100 * report.worst_accuracy:.1f} % of its worst group ({worst.name}) are right, where guessing gets "
        f"{100 * chance:.1f} %",
    )


def gain_over(report: GroupReport, reference: GroupReport) -> Difference:
    """The worst group, or class, less that of plain training, with two standard errors of the test set to each side.

    Where both reports kept what happened to every example, these are compared pair by pair.
    """
    with suppress(DataError):  # of other examples, or in another order
        return report.compare(reference).worst
    ours, theirs = report.worst_accuracy, reference.worst_accuracy
    counts = ((ours, report.worst.count), (theirs, reference.worst.count))
    width = 2 * math.sqrt(sum(share * (1 - share) / count for share, count in counts))
    return Difference("worst", ours, theirs, ours - theirs - width, ours - theirs + width)


def against_reference(report: GroupReport, reference: GroupReport, *, aims: bool) -> Finding:
    """The worst group against that of a plain training on the same test set, see `check_reference`.

    Without groups it is the worst class; what a method for the worst group loses there only doubts: it may be the price
    of a gain for a group that nobody labelled.

    Args:
        report: how the groups fare.
        reference: how they fare by plain training.
        aims: whether the method is one for the worst group.
    """
    gain, part = gain_over(report, reference), "class" if report.grouping == "classes" else "group"
    check, luck = AIM if aims else REFERENCE, (gain.high - gain.low) / 2
    assert check.failed is not None
    failed = min(check.failed, -luck)
    check = replace(check, failed=None, remedy=_UNSEEN) if aims and part == "class" else replace(check, failed=failed)
    return check.finding(
        gain.value,
        f"its worst {part} has {100 * gain.ours:.1f} % and that of plain training {100 * gain.theirs:.1f} % (all of "
        f"the test set: {100 * report.accuracy:.1f} and {100 * reference.accuracy:.1f} %)",
    )


def of_worst_group(report: GroupReport, reference: GroupReport | None, *, aims: bool) -> list[Finding]:
    """What there is to say of the worst group: against guessing, where it is the method's aim, and plain training."""
    found = [worst_group(report, reference)] if aims and report.grouping != "classes" else []
    return [*found, *([against_reference(report, reference, aims=aims)] if reference is not None else [])]


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
