"""Metrics by name, each a function of weights: the plain value has weights of one, a bootstrap draw has its counts.

So one definition gives the value, its interval and its weighted form. A metric that has no value, such as the recall of
a group without positives, is nan (scikit-learn's ``zero_division=nan``): 0 would make the group look worst where
nothing is known of it. With two classes, recall, precision, F1 and the rates are of the positive class; with more,
recall, precision and F1 are means over the classes that have a value (macro), and AUROC is the mean of one against the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from holdfast.errors import ConfigError, nearest
from holdfast.training.evaluation.by_group.judged import Floats, Judged

#: Values of a metric under several sets of weights: (draws, n) to (draws,).
Measure = Callable[[Judged, Floats], Floats]
#: Which of two groups fares better: the one with the higher value, the lower, or the one nearer to zero; or neither.
Better = Literal["higher", "lower", "zero", "neither"]

_BINS = 15


@dataclass(frozen=True)
class Metric:
    """A number that tells how a group fares.

    Attributes:
        name: as it is asked for.
        title: as it is shown.
        measure: gives its value under several sets of weights.
        better: which value is better.
        needs: ``classes``, ``two classes``, ``probabilities`` or ``quantities``.
        share: successes and trials of a metric that is a share, for Wilson's interval.
        percent: whether it is shown in percent.
    """

    name: str
    title: str
    measure: Measure
    better: Better
    needs: Literal["classes", "two classes", "probabilities", "quantities", "anything"]
    share: Callable[[Judged], tuple[float, int]] | None = None
    percent: bool = False

    def unmet(self, judged: Judged) -> str | None:
        """What the predictions lack for this metric, or None."""
        if self.needs == "anything":
            return None
        if (judged.task == "quantities") != (self.needs == "quantities"):
            return "is for " + ("quantities" if self.needs == "quantities" else "classes")
        if self.needs == "two classes" and not judged.binary:
            return f"is for two classes and there are {len(judged.class_names)}"
        if self.needs == "probabilities" and judged.probabilities is None:
            return "needs probabilities"
        return None


def custom(name: str, function: Callable[..., float], better: Better = "higher") -> Metric:
    """A metric of your own, called as scikit-learn's are: ``function(truth, predicted)``.

    Classes arrive as their names, quantities as numbers. Weighted examples are handed on as ``sample_weight``.
    """

    def measure(judged: Judged, weights: Floats) -> Floats:
        names = np.asarray(judged.class_names)
        columns = (judged.truth, judged.predicted) if judged.task == "quantities" else (
            names[judged.truth], names[judged.predicted])  # fmt: skip
        plain = bool((judged.weights == 1).all())
        values = []
        for row in weights:
            if plain:  # a draw has whole counts: the examples are handed on as often as they were drawn
                rows = np.repeat(np.arange(len(judged)), row.astype(np.int64))
                values.append(_called(name, function, columns[0][rows], columns[1][rows]))
            else:
                values.append(_called(name, function, *columns, sample_weight=row))
        return np.asarray(values)

    return Metric(name, name, measure, better, "anything")


def _called(name: str, function: Callable[..., float], *columns: Any, **more: Any) -> float:
    try:
        return float(function(*columns, **more))
    except TypeError as error:
        raise ConfigError(
            f"the metric {name!r} can't be called as function(truth, predicted) ({error}); give one that can, and that "
            "takes sample_weight where examples are weighted"
        ) from error


def find_metrics(names: Sequence[str | Metric] | Mapping[str, Callable[..., float]], judged: Judged) -> list[Metric]:
    """The metrics that are asked for, or by default those that the predictions allow.

    Raises:
        ConfigError: if one is not known or can't be had of these predictions.
    """
    if not names:
        return [METRICS[name] for name in _DEFAULTS if METRICS[name].unmet(judged) is None]
    if isinstance(names, Mapping):
        return [custom(name, function) for name, function in names.items()]
    chosen = []
    for name in names:
        if not isinstance(name, Metric) and name not in METRICS:
            raise ConfigError(
                f"there is no metric {name!r}{nearest(str(name), METRICS)}; there are {', '.join(METRICS)}"
            )
        metric = name if isinstance(name, Metric) else METRICS[name]
        if (reason := metric.unmet(judged)) is not None:
            raise ConfigError(f"the metric {metric.name!r} {reason}; leave it out or give what it needs")
        chosen.append(metric)
    return chosen


def _over(above: Floats, below: Floats) -> Floats:
    """A quotient, nan where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def _mean(values: Callable[[Judged], Any]) -> Measure:
    """The weighted mean of a number per example."""

    def measure(judged: Judged, weights: Floats) -> Floats:
        return _over(weights @ np.asarray(values(judged), dtype=np.float64), weights.sum(1))

    return measure


def _among(hit: Callable[[Judged], Any], whom: Callable[[Judged], Any]) -> tuple[Measure, Callable[..., Any]]:
    """The share of `hit` among those of `whom`, and its successes and trials."""

    def measure(judged: Judged, weights: Floats) -> Floats:
        chosen = np.asarray(whom(judged), np.float64)
        return _over(weights @ (chosen * hit(judged)), weights @ chosen)

    def share(judged: Judged) -> tuple[float, int]:
        chosen = np.asarray(whom(judged), np.bool_)
        return float((chosen & hit(judged)).sum()), int(chosen.sum())

    return measure, share


def _by_class(value: Callable[[Floats, Floats, Floats], Floats]) -> Measure:
    """A number out of hits, truths and predictions of a class: of the positive of two classes, else the macro mean."""

    def measure(judged: Judged, weights: Floats) -> Floats:
        classes = [judged.positive] if judged.binary else range(len(judged.class_names))
        columns = []
        for number in classes:
            true, said = judged.truth == number, judged.predicted == number
            columns.append(value(weights @ (true & said), weights @ true, weights @ said))
        return _nan_mean(np.stack(columns, 1))

    return measure


def _nan_mean(values: Floats) -> Floats:
    known = ~np.isnan(values)
    return _over(np.where(known, values, 0).sum(1), known.sum(1).astype(np.float64))


def _auroc(judged: Judged, weights: Floats) -> Floats:
    assert judged.probabilities is not None
    classes = [judged.positive] if judged.binary else range(len(judged.class_names))
    return _nan_mean(np.stack([_area(judged.probabilities[:, k], judged.truth == k, weights) for k in classes], 1))


def _area(scores: Floats, positive: Any, weights: Floats) -> Floats:
    """Chance that a positive has the higher score than a negative, ties counted by half (Mann and Whitney)."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    sorted_weights = weights[:, order]
    above = np.add.reduceat(sorted_weights * positive[order], starts, axis=1)
    below = np.add.reduceat(sorted_weights * ~positive[order], starts, axis=1)
    lower = np.cumsum(below, axis=1) - below
    return _over((above * (lower + below / 2)).sum(1), above.sum(1) * below.sum(1))


def _log_losses(judged: Judged) -> Floats:
    assert judged.probabilities is not None
    least = np.finfo(np.float64).eps
    given = np.clip(judged.probabilities[np.arange(len(judged)), judged.truth], least, 1 - least)
    return np.asarray(-np.log(given))


def _brier(judged: Judged) -> Floats:
    assert judged.probabilities is not None
    wrong = judged.probabilities.copy()
    wrong[np.arange(len(judged)), judged.truth] -= 1
    return np.asarray((wrong**2).sum(1) / (2 if judged.binary else 1))


def _calibration_error(judged: Judged, weights: Floats) -> Floats:
    """Expected calibration error over 15 even bins: of the positive's probability, or of the most likely class's."""
    assert judged.probabilities is not None
    if judged.binary:
        sure, true = judged.probabilities[:, judged.positive], judged.truth == judged.positive
    else:
        sure, true = judged.probabilities.max(1), judged.probabilities.argmax(1) == judged.truth
    bins = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], sure)
    member = np.zeros((len(judged), _BINS))
    member[np.arange(len(judged)), bins] = sure - true
    return _over(abs(weights @ member).sum(1), weights.sum(1))


def _r2(judged: Judged, weights: Floats) -> Floats:
    mean = _over(weights @ judged.truth, weights.sum(1))
    middle = judged.truth.mean()  # moments about it, so that large quantities don't cancel
    spread = weights @ (judged.truth - middle) ** 2 - weights.sum(1) * (mean - middle) ** 2
    least = 1e-12 * (weights @ (judged.truth**2))  # less than rounding leaves: all true values are equal
    return 1 - _over(weights @ (judged.truth - judged.predicted) ** 2, np.where(spread > least, spread, 0))


def _squared(judged: Judged) -> Floats:
    return np.asarray((judged.truth - judged.predicted) ** 2)


def _true(judged: Judged) -> Any:
    return judged.truth == judged.positive


def _said(judged: Judged) -> Any:
    return judged.predicted == judged.positive


def _everybody(judged: Judged) -> Any:
    return np.ones(len(judged), np.bool_)


def _right(judged: Judged) -> Any:
    return judged.truth == judged.predicted


def _binary(share: Callable[[Judged], tuple[float, int]]) -> Callable[[Judged], tuple[float, int]]:
    """Successes and trials where there are two classes; none where the metric is a mean over classes."""
    return lambda judged: share(judged) if judged.binary else (0.0, 0)


_ACCURACY, _ACCURACY_SHARE = _among(_right, _everybody)
_, _RECALL_SHARE = _among(_said, _true)
_, _PRECISION_SHARE = _among(_true, _said)
_SELECTION, _SELECTION_SHARE = _among(_said, _everybody)
_FALSE_POSITIVE, _FALSE_POSITIVE_SHARE = _among(_said, lambda judged: ~_true(judged))
_FALSE_NEGATIVE, _FALSE_NEGATIVE_SHARE = _among(lambda judged: ~_said(judged), _true)

_EVERY = (
    Metric("accuracy", "Accuracy", _ACCURACY, "higher", "classes", _ACCURACY_SHARE, percent=True),
    Metric("recall", "Recall", _by_class(lambda hit, true, said: _over(hit, true)), "higher", "classes",
           _binary(_RECALL_SHARE), percent=True),
    Metric("precision", "Precision", _by_class(lambda hit, true, said: _over(hit, said)), "higher", "classes",
           _binary(_PRECISION_SHARE), percent=True),
    Metric("f1", "F1", _by_class(lambda hit, true, said: _over(2 * hit, true + said)), "higher", "classes",
           percent=True),
    Metric("selection_rate", "Selection rate", _SELECTION, "neither", "two classes", _SELECTION_SHARE, percent=True),
    Metric("false_positive_rate", "False positive rate", _FALSE_POSITIVE, "lower", "two classes",
           _FALSE_POSITIVE_SHARE, percent=True),
    Metric("false_negative_rate", "False negative rate", _FALSE_NEGATIVE, "lower", "two classes",
           _FALSE_NEGATIVE_SHARE, percent=True),
    Metric("auroc", "AUROC", _auroc, "higher", "probabilities"),
    Metric("log_loss", "Log-loss", _mean(_log_losses), "lower", "probabilities"),
    Metric("brier", "Brier score", _mean(_brier), "lower", "probabilities"),
    Metric("calibration_error", "Calibration error", _calibration_error, "lower", "probabilities"),
    Metric("mae", "Mean absolute error", _mean(lambda judged: abs(judged.truth - judged.predicted)), "lower",
           "quantities"),
    Metric("mse", "Mean squared error", _mean(_squared), "lower", "quantities"),
    Metric("rmse", "Root mean squared error", lambda judged, weights: np.sqrt(_mean(_squared)(judged, weights)),
           "lower", "quantities"),
    Metric("mean_error", "Mean error", _mean(lambda judged: judged.predicted - judged.truth), "zero", "quantities"),
    Metric("r2", "R²", _r2, "higher", "quantities"),
)  # fmt: skip

#: Metrics by name.
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _EVERY}
_DEFAULTS = (
    "accuracy", "recall", "precision", "f1", "selection_rate", "false_positive_rate", "auroc", "log_loss",
    "calibration_error", "mae", "rmse", "mean_error", "r2",
)  # fmt: skip
