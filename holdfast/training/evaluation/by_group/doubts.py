"""Whether a report by group can bear what one would like to say with it: enough examples, gaps beyond chance."""

from __future__ import annotations

from holdfast.data.own.words import some
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics, GroupValues
from holdfast.training.health.check import Check, Health

#: Examples below which a group's number says little.
FEW = 10

_EXAMPLES = Check(
    "examples per group",
    doubtful=FEW,
    failed=None,
    bad="below",
    reason="below ten examples each of them moves a share by more than ten points",
    remedy="collect more examples of these groups, or read their intervals and not their values",
)


def health(report: GroupMetrics) -> Health:
    """What speaks against a report; groups by several attributes are left out, of which many are always small."""
    single = [group for group in report.groups if len(group.attributes) == 1]
    filled = [group for group in single if group.count]
    if not filled:
        return Health()
    least = min(group.count for group in filled)
    few = [f"{group.name} ({group.count})" for group in filled if group.count < FEW]
    sentence = f"the smallest group has {least:,} examples"
    if few:
        have = "has" if len(few) == 1 else "have"
        sentence = f"{len(few):,} of {len(filled):,} groups {have} fewer than {FEW} examples: {some(few)}"
    return Health.of([_EXAMPLES.finding(least, sentence)])


def headline_group(report: GroupMetrics) -> GroupValues | None:
    """The worst group by the first metric, among those with enough examples where there are some."""
    metric = report.metrics[0]
    known = [group for group in report.groups if group.values[metric.name].known]
    known = [group for group in known if group.count >= FEW] or known
    return max(known, key=lambda group: report.badness(metric.name, group), default=None)


def may_be_chance(report: GroupMetrics, *attributes: str) -> bool | None:
    """Whether the 95% intervals of the worst and the best group by some attributes meet, by the first metric.

    Intervals that do not meet are hardly chance, though that the worst and the best of many were picked is not
    accounted for. None where a group has no interval.
    """
    metric = report.metrics[0]
    ends = [pick(metric.name, *attributes).values[metric.name] for pick in (report.worst, report.best)]
    lower, upper = sorted(ends, key=lambda value: value.value)
    return None if lower.high is None or upper.low is None else lower.high > upper.low
