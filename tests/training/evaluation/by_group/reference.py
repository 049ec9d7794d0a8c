"""What scikit-learn and fairlearn say of the examples of one group; nan where a metric has no value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fairlearn import metrics as fair
from sklearn import metrics as sk

BINS = 15


def same(ours, theirs):
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True)


def gap_of_bins(sure, true, weights):
    """The expected calibration error, bin by bin."""
    number = np.clip(np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], sure), 0, BINS - 1)
    gaps = [abs(np.sum(weights[number == k] * (sure[number == k] - true[number == k]))) for k in range(BINS)]
    return sum(gaps) / weights.sum()


def of_predicted_classes(y, guess, w):
    """Two classes without probabilities; the positive one is 1."""
    kw = {"sample_weight": w}
    true, false = w[y == 1].sum(), w[y == 0].sum()
    return {
        "accuracy": sk.accuracy_score(y, guess, **kw),
        "recall": sk.recall_score(y, guess, zero_division=np.nan, **kw),
        "precision": sk.precision_score(y, guess, zero_division=np.nan, **kw),
        "f1": sk.f1_score(y, guess, zero_division=np.nan, **kw),
        "selection_rate": fair.selection_rate(y, guess, **kw),
        "false_positive_rate": fair.false_positive_rate(y, guess, **kw) if false else math.nan,
        "false_negative_rate": fair.false_negative_rate(y, guess, **kw) if true else math.nan,
    }


def of_two_classes(y, guess, p, w):
    """Two classes, the probability of the positive one is `p`."""
    kw = {"sample_weight": w}
    both = len(np.unique(y[w > 0])) == 2
    return of_predicted_classes(y, guess, w) | {
        "auroc": sk.roc_auc_score(y, p, **kw) if both else math.nan,
        "log_loss": sk.log_loss(y, p, labels=[0, 1], **kw),
        "brier": sk.brier_score_loss(y, p, labels=[0, 1], **kw),
        "calibration_error": gap_of_bins(p, y, w),
    }


def of_several_classes(y, guess, p, w):
    """Classes 0, 1, ..., a column of `p` each; means over the classes that have a value."""
    kw = {"sample_weight": w}
    macro = {"average": "macro", "zero_division": np.nan, **kw}
    classes = range(p.shape[1])
    areas = [sk.roc_auc_score(y == k, p[:, k], **kw) for k in classes if 0 < (y == k).sum() < len(y)]
    return {
        "accuracy": sk.accuracy_score(y, guess, **kw),
        "recall": sk.recall_score(y, guess, **macro),
        "precision": sk.precision_score(y, guess, **macro),
        "f1": sk.f1_score(y, guess, **macro),
        "auroc": np.mean(areas) if areas else math.nan,
        "log_loss": sk.log_loss(y, p, labels=classes, **kw),
        "brier": sk.brier_score_loss(y, p, labels=classes, scale_by_half=False, **kw),
        "calibration_error": gap_of_bins(p.max(1), p.argmax(1) == y, w),
    }


def of_quantities(y, guess, w):
    """A regression."""
    kw = {"sample_weight": w}
    several = len(np.unique(y)) > 1
    return {
        "mae": sk.mean_absolute_error(y, guess, **kw),
        "mse": sk.mean_squared_error(y, guess, **kw),
        "rmse": sk.root_mean_squared_error(y, guess, **kw),
        "mean_error": np.average(guess - y, weights=w),
        "r2": sk.r2_score(y, guess, **kw) if several else math.nan,
    }
