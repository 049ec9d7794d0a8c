"""Metrics by group for other programs: an Arrow table, a pandas data frame, fairlearn's MetricFrame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics, GroupValues
    from holdfast.training.evaluation.by_group.judged import Ints
    from holdfast.training.evaluation.by_group.metrics import Metric


def to_arrow(report: GroupMetrics) -> pa.Table:
    """A row per group and metric; the first rows are of all examples.

    Columns: ``attributes`` and ``group`` (lists of words), ``count``, ``metric``, ``value``, ``low``, ``high``,
    ``difference`` and ``ratio`` to the best group by the same attributes; what has no value is null.
    """
    rows = [_row(report, group, metric.name) for group in (report.overall, *report.groups) for metric in report.metrics]
    kinds = {"attributes": pa.list_(pa.string()), "group": pa.list_(pa.string()), "count": pa.int64()}
    kinds |= {"metric": pa.string()} | dict.fromkeys(("value", "low", "high", "difference", "ratio"), pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


def to_pandas(report: GroupMetrics) -> Any:
    """The table of `to_arrow` as a pandas data frame, groups as words.

    Raises:
        MissingDependencyError: if pandas is not installed.
    """
    try:
        import pandas  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingDependencyError("pandas is not installed; pip install pandas, or take to_arrow") from error
    frame = to_arrow(report).to_pandas()
    for column in ("attributes", "group"):
        frame[column] = [", ".join(words) for words in frame[column]]
    return frame


def metric_frame(report: GroupMetrics, *attributes: str) -> Any:
    """The same metrics as fairlearn's MetricFrame, which groups the examples itself.

    Args:
        report: the report.
        attributes: what groups are by; several for their intersections.

    Raises:
        DataError: if groups overlap, or some examples are in none: a MetricFrame has one group per example.
        MissingDependencyError: if fairlearn is not installed.
    """
    try:
        from fairlearn.metrics import MetricFrame  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("fairlearn is not installed; pip install 'holdfast[fairlearn]'") from error
    judged = report.judged

    def function(metric: Metric) -> Any:
        def measure(_truth: Any, _predicted: Any, rows: Ints) -> float:
            part = judged.take(np.asarray(rows))
            return float(metric.measure(part, part.weights[None])[0])

        return measure

    places = np.arange(len(judged))
    return MetricFrame(
        metrics={metric.name: function(metric) for metric in report.metrics},
        y_true=judged.truth,
        y_pred=judged.predicted,
        sensitive_features={name: _column(report, name) for name in attributes},
        sample_params={metric.name: {"rows": places} for metric in report.metrics},
    )


def _column(report: GroupMetrics, attribute: str) -> Any:
    column = np.full(len(report.judged), None, dtype=object)
    for group in report.by(attribute):
        if any(value is not None for value in column[group.rows]):
            raise DataError(f"groups by {attribute!r} overlap, and a MetricFrame has one group per example")
        column[group.rows] = group.levels[0]
    if any(value is None for value in column):
        raise DataError(f"some examples have no {attribute!r}, and a MetricFrame has a group for each; fill them")
    return column


def _row(report: GroupMetrics, group: GroupValues, metric: str) -> dict[str, Any]:
    value = group.values[metric]
    compared = bool(group.attributes) and value.known
    difference, ratio = report.to_best(metric, group) if compared else (None, None)
    return {
        "attributes": list(group.attributes),
        "group": list(group.levels),
        "count": group.count,
        "metric": metric,
        "value": value.value if value.known else None,
        "low": value.low,
        "high": value.high,
        "difference": difference,
        "ratio": None if ratio is None or math.isnan(ratio) else ratio,
    }
