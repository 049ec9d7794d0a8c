"""Any metric by group: values with intervals, how far each group is from the best one, and parity gaps.

`GroupReport` counts right and wrong predictions, cheaply enough for every epoch of a run. This is the report for when
accuracy is not the question: recall, calibration, errors of a regression, a function of yours; by several attributes
and their intersections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from holdfast.errors import DataError
from holdfast.training.evaluation.by_group import exports
from holdfast.training.evaluation.by_group.grouping import check_known, families
from holdfast.training.evaluation.by_group.intervals import intervals
from holdfast.training.evaluation.by_group.judged import Ints, Judged, judged_classes, judged_quantities
from holdfast.training.evaluation.by_group.metrics import Metric, find_metrics
from holdfast.training.evaluation.drawing import metrics_table


@dataclass(frozen=True)
class Value:
    """A metric of a group: nan and no interval where it has none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)


@dataclass(frozen=True)
class GroupValues:
    """How one group fares.

    Attributes:
        attributes: what the group is by; empty for all examples.
        levels: its value of each attribute.
        count: its examples.
        values: by the metric's name.
        rows: which examples.
    """

    attributes: tuple[str, ...]
    levels: tuple[str, ...]
    count: int
    values: Mapping[str, Value]
    rows: Ints = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The group in words."""
        return ", ".join(self.levels) or "all examples"


@dataclass(frozen=True)
class GroupMetrics:
    """Metrics of every group.

    Build one with `of_classes` or `of_quantities`.

    Attributes:
        metrics: what was measured.
        overall: on all examples.
        groups: by each attribute, then by attributes together.
        judged: the examples, truth and prediction.

    Example:
        >>> report = GroupMetrics.of_classes(
        ...     [0, 0, 1, 1], [0, 1, 1, 1], groups={"sex": ["f", "m", "f", "m"]}, metrics=["accuracy"]
        ... )
        >>> report.worst("accuracy").name, report.difference("accuracy", "sex"), report.ratio("accuracy", "sex")
        ('m', 0.5, 0.5)
    """

    metrics: tuple[Metric, ...]
    overall: GroupValues
    groups: tuple[GroupValues, ...]
    judged: Judged = field(repr=False, compare=False)

    @classmethod
    def of_classes(
        cls,
        truth: Any,
        predicted: Any = None,
        *,
        probabilities: Any = None,
        groups: Mapping[str, Any],
        metrics: Sequence[str | Metric] | Mapping[str, Callable[..., float]] = (),
        weights: Any = None,
        class_names: Sequence[str] | None = None,
        positive: str | None = None,
        depth: int = 2,
        draws: int = 1000,
        seed: int = 0,
    ) -> GroupMetrics:
        """Judge classes; see `judged_classes` for the first arguments.

        Args:
            truth: the class of each example, (n,).
            predicted: the predicted class.
            probabilities: of the positive class, (n,), or of all, (n, classes).
            groups: by the attribute's name, a value per example, or a list of values where groups overlap.
            metrics: names, `Metric` values, or functions by name; by default all that the predictions allow.
            weights: what each example counts.
            class_names: the classes, in the order of the probabilities.
            positive: the class that is looked for, of two.
            depth: groups are made by up to so many attributes together.
            draws: of the bootstrap; 0 leaves out intervals of what is no share.
            seed: decides the draws.

        Raises:
            DataError: if the columns make no sense.
            ConfigError: if a metric is not known or can't be had.
        """
        judged = judged_classes(
            truth, predicted, probabilities, weights=weights, class_names=class_names, positive=positive
        )
        return cls.of(judged, groups, metrics, depth=depth, draws=draws, seed=seed)

    @classmethod
    def of_quantities(
        cls,
        truth: Any,
        predicted: Any,
        *,
        groups: Mapping[str, Any],
        metrics: Sequence[str | Metric] | Mapping[str, Callable[..., float]] = (),
        weights: Any = None,
        depth: int = 2,
        draws: int = 1000,
        seed: int = 0,
    ) -> GroupMetrics:
        """Judge quantities, such as prices; arguments as of `of_classes`."""
        return cls.of(
            judged_quantities(truth, predicted, weights), groups, metrics, depth=depth, draws=draws, seed=seed
        )

    @classmethod
    def of(
        cls,
        judged: Judged,
        groups: Mapping[str, Any],
        metrics: Sequence[str | Metric] | Mapping[str, Callable[..., float]] = (),
        *,
        depth: int = 2,
        draws: int = 1000,
        seed: int = 0,
    ) -> GroupMetrics:
        """Judge examples that were checked before; arguments as of `of_classes`."""
        chosen = find_metrics(metrics, judged)

        def values(attributes: tuple[str, ...], levels: tuple[str, ...], rows: Ints) -> GroupValues:
            return GroupValues(
                attributes, levels, len(rows), _measured(judged.take(rows), chosen, draws=draws, seed=seed), rows
            )

        return cls(
            tuple(chosen),
            values((), (), np.arange(len(judged))),
            tuple(
                values(family.attributes, levels, rows)
                for family in families(groups, len(judged), depth)
                for levels, rows in zip(family.levels, family.rows, strict=True)
            ),
            judged,
        )

    @property
    def families(self) -> tuple[tuple[str, ...], ...]:
        """What groups are by: attributes, and attributes together."""
        return tuple(dict.fromkeys(group.attributes for group in self.groups))

    def by(self, *attributes: str) -> tuple[GroupValues, ...]:
        """The groups by an attribute, or by several together; of no attribute, all groups."""
        if not attributes:
            return self.groups
        family = check_known(attributes, self.families)
        return tuple(group for group in self.groups if group.attributes == family)

    def best(self, metric: str, *attributes: str) -> GroupValues:
        """The group that fares best."""
        return min(self._known(metric, attributes), key=lambda group: self.badness(metric, group))

    def worst(self, metric: str, *attributes: str) -> GroupValues:
        """The group that fares worst, the first of equals; groups without a value don't count."""
        return max(self._known(metric, attributes), key=lambda group: self.badness(metric, group))

    def difference(self, metric: str, *attributes: str) -> float:
        """The largest value minus the smallest, fairlearn's ``difference``; nan where no group has a value."""
        values = self._values(metric, attributes)
        return max(values) - min(values) if values else math.nan

    def ratio(self, metric: str, *attributes: str) -> float:
        """The smallest value over the largest, fairlearn's ``ratio``; nan where a value is negative or all are 0."""
        values = self._values(metric, attributes)
        return min(values) / max(values) if values and min(values) >= 0 and max(values) > 0 else math.nan

    def to_best(self, metric: str, group: GroupValues) -> tuple[float, float]:
        """Difference and ratio of a group to the best one by the same attributes.

        Of a rate that is neither good nor bad, to the highest.
        """
        here, best = group.values[metric].value, self.best(metric, *group.attributes).values[metric].value
        return here - best, here / best if best > 0 else math.nan

    def parity(self, *attributes: str) -> dict[str, float]:
        """Gaps between groups of two-class predictions, by fairlearn's names; empty for anything else."""
        if not self.judged.binary:
            return {}
        names = ("selection_rate", "recall", "false_positive_rate")
        chosen = find_metrics(names, self.judged)
        groups = [
            {name: value.value for name, value in _measured(self.judged.take(group.rows), chosen, draws=None).items()}
            for group in self.by(*attributes)
            if group.count
        ]
        spread = {name: [values[name] for values in groups if not math.isnan(values[name])] for name in names}
        gaps = {name: max(values) - min(values) if values else math.nan for name, values in spread.items()}
        ratios = {
            name: min(values) / max(values) if values and max(values) > 0 else math.nan
            for name, values in spread.items()
        }
        return {
            "demographic_parity_difference": gaps["selection_rate"],
            "demographic_parity_ratio": ratios["selection_rate"],
            "equal_opportunity_difference": gaps["recall"],
            "equalized_odds_difference": float(np.fmax(gaps["recall"], gaps["false_positive_rate"])),
            "equalized_odds_ratio": float(np.fmin(ratios["recall"], ratios["false_positive_rate"])),
        }

    def to_arrow(self) -> pa.Table:
        """A row per group and metric; see `exports.to_arrow`."""
        return exports.to_arrow(self)

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        return exports.to_pandas(self)

    def metric_frame(self, *attributes: str) -> Any:
        """The same metrics as fairlearn's MetricFrame; see `exports.metric_frame`."""
        return exports.metric_frame(self, *attributes)

    def table(self, *attributes: str, title: str = "", most: int | None = None) -> Table:
        """The groups by some attributes for a terminal, by the first one by default; at most so many metrics."""
        return metrics_table(self, attributes or self.families[0], title, most)

    def _values(self, metric: str, attributes: tuple[str, ...]) -> list[float]:
        self._metric(metric)
        return [group.values[metric].value for group in self.by(*attributes) if group.values[metric].known]

    def _known(self, metric: str, attributes: tuple[str, ...]) -> list[GroupValues]:
        self._metric(metric)
        known = [group for group in self.by(*attributes) if group.values[metric].known]
        if not known:
            raise DataError(f"no group has a value of {metric!r}; look at its classes and its count")
        return known

    def _metric(self, name: str) -> Metric:
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise DataError(f"{name!r} was not measured; measured were {', '.join(metric.name for metric in self.metrics)}")

    def badness(self, name: str, group: GroupValues) -> float:
        """How badly a group fares by a metric: larger is worse."""
        value = group.values[name].value
        return {"lower": value, "zero": abs(value)}.get(self._metric(name).better, -value)


def _measured(judged: Judged, metrics: Sequence[Metric], *, draws: int | None, seed: int = 0) -> dict[str, Value]:
    """The metrics of one group; without `draws` no intervals at all."""
    if not len(judged):
        return {metric.name: Value(math.nan) for metric in metrics}
    values = [float(metric.measure(judged, judged.weights[None])[0]) for metric in metrics]
    ends = [None] * len(metrics) if draws is None else intervals(judged, metrics, draws=draws, seed=seed)
    return {
        metric.name: Value(value, *(end or (None, None))) if not math.isnan(value) else Value(value)
        for metric, value, end in zip(metrics, values, ends, strict=True)
    }
