"""Metrics by group beside scikit-learn's; tests/soak/test_evaluations.py has fairlearn's, through the command."""

import math

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from holdfast.errors import ConfigError, DataError
from holdfast.training.evaluation.by_group.exports import metric_frame, to_arrow, to_pandas
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics
from tests.training.evaluation.by_group.reference import same


def test_several_classes_agree_with_scikit_learn():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(8, 60)), int(rng.integers(3, 6))
        y, p = rng.integers(0, k, n), rng.dirichlet(np.ones(k), n)
        guess, g = p.argmax(1), rng.integers(0, 3, n)
        report = GroupMetrics.of_classes(
            y, probabilities=p, groups={"g": g}, class_names=list(map(str, range(k))), draws=0
        )
        for group in report.by("g"):
            inside = g == int(group.levels[0])
            a, b, q = y[inside], guess[inside], p[inside]
            values = {name: value.value for name, value in group.values.items()}
            kw = {"average": "macro", "zero_division": np.nan}
            same(values["recall"], sk.recall_score(a, b, **kw))
            same(values["precision"], sk.precision_score(a, b, **kw))
            same(values["f1"], sk.f1_score(a, b, **kw))
            same(values["log_loss"], sk.log_loss(a, q, labels=range(k)))
            areas = [sk.roc_auc_score(a == c, q[:, c]) for c in range(k) if 0 < (a == c).sum() < len(a)]
            same(values["auroc"], np.mean(areas) if areas else math.nan)


def test_quantities_agree_with_scikit_learn():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 80))
        y = rng.normal(1e3, 5, n)
        p, g, w = y + rng.normal(0, 2, n), rng.integers(0, 2, n), rng.random(n) + 0.1
        report = GroupMetrics.of_quantities(y, p, groups={"g": g}, weights=w, draws=0)
        for group in report.by("g"):
            i = g == int(group.levels[0])
            kw = {"sample_weight": w[i]}
            values = {name: value.value for name, value in group.values.items()}
            same(values["mae"], sk.mean_absolute_error(y[i], p[i], **kw))
            same(values["rmse"], sk.root_mean_squared_error(y[i], p[i], **kw))
            same(values["mean_error"], np.average(p[i] - y[i], weights=w[i]))
            if i.sum() > 1:
                assert values["r2"] == pytest.approx(sk.r2_score(y[i], p[i], **kw), rel=1e-6, abs=1e-7)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng, hits = np.random.default_rng(0), {"auroc": 0, "recall": 0, "log_loss": 0}
    p = rng.random(200_000)
    y = (rng.random(200_000) < p).astype(int)
    truth = GroupMetrics.of_classes(y, probabilities=p, groups={"g": ["a"] * len(y)}, metrics=list(hits), draws=0)
    for trial in range(100):
        rows = rng.integers(0, len(y), 150)
        drawn = GroupMetrics.of_classes(
            y[rows], probabilities=p[rows], groups={"g": ["a"] * 150}, metrics=list(hits), draws=300, seed=trial
        )
        for name in hits:
            value = drawn.overall.values[name]
            hits[name] += value.low <= truth.overall.values[name].value <= value.high
    assert all(88 <= count <= 100 for count in hits.values()), hits


def test_a_function_of_ones_own_is_a_metric_with_an_interval():
    y, guess = [0, 1, 1, 0, 1, 0] * 5, [0, 1, 0, 0, 1, 1] * 5
    groups = {"half": ["l", "r"] * 15}
    report = GroupMetrics.of_classes(y, guess, groups=groups, metrics={"kappa": sk.cohen_kappa_score}, draws=50)
    value = report.overall.values["kappa"]
    same(value.value, sk.cohen_kappa_score(y, guess))
    assert value.low < value.value < value.high


def test_the_table_has_distances_to_the_best_group_and_nulls_for_what_has_no_value():
    report = GroupMetrics.of_classes(
        [1, 1, 0], [1, 0, 0], groups={"g": ["a", "a", "b"]}, metrics=["recall", "accuracy"]
    )
    rows = {(tuple(row["group"]), row["metric"]): row for row in to_arrow(report).to_pylist()}
    assert rows[("a",), "recall"]["value"] == 0.5
    assert rows[("b",), "recall"]["value"] is None
    assert rows[("a",), "accuracy"]["difference"] == -0.5
    assert rows[("a",), "accuracy"]["ratio"] == 0.5
    assert list(to_pandas(report)["group"]) == ["", "", "a", "a", "b", "b"]


def test_lower_is_better_for_errors_and_nearest_to_zero_for_the_mean_error():
    report = GroupMetrics.of_quantities([0, 0, 0, 0], [1, 1, -3, -3], groups={"g": list("aabb")})
    assert report.worst("mae", "g").name == report.worst("mean_error", "g").name == "b"
    assert report.best("mean_error", "g").name == "a"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: GroupMetrics.of_classes([0, 1], [0], groups={}), "2 examples"),
        (lambda: GroupMetrics.of_classes([0, 1], groups={}), "nothing to judge"),
        (lambda: GroupMetrics.of_classes([0, 1], probabilities=[0.2, 3], groups={}), "not logits"),
        (lambda: GroupMetrics.of_classes([0, 1], [0, 1], groups={"g": [1]}), "1 values for 2"),
        (lambda: GroupMetrics.of_quantities([0, np.nan], [0, 1], groups={}), "the first is 2"),
        (lambda: GroupMetrics.of_classes([0.5, 1], [0, 1], groups={}), "judge quantities"),
    ],
)
def test_what_can_not_be_judged_is_refused_with_a_sentence(call, sentence):
    with pytest.raises(DataError, match=sentence):
        call()


def test_a_metric_that_is_unknown_or_can_not_be_had_is_refused():
    with pytest.raises(ConfigError, match="recall"):
        GroupMetrics.of_classes([0, 1], [0, 1], groups={}, metrics=["recal"])
    with pytest.raises(ConfigError, match="needs probabilities"):
        GroupMetrics.of_classes([0, 1], [0, 1], groups={}, metrics=["auroc"])


def test_overlapping_groups_make_no_metric_frame():
    report = GroupMetrics.of_classes([0, 1], [0, 1], groups={"t": [["a", "b"], ["a"]]})
    with pytest.raises(DataError, match="overlap"):
        metric_frame(report, "t")


def test_calibration_error_is_that_of_scikit_learns_curve():
    rng = np.random.default_rng(3)
    p = rng.random(5000)
    y = (rng.random(5000) < p**2).astype(int)
    ours = GroupMetrics.of_classes(y, probabilities=p, groups={}, metrics=["calibration_error"], draws=0)
    true, mean = calibration_curve(y, p, n_bins=15, strategy="uniform")
    share = np.bincount(np.searchsorted(np.linspace(0, 1, 16)[1:-1], p), minlength=15) / 5000
    same(ours.overall.values["calibration_error"].value, float((share * abs(true - mean)).sum()))
