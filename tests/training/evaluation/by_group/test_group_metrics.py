"""Every number against scikit-learn's and fairlearn's, on random predictions with empty and overlapping groups."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from fairlearn import metrics as fair
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from holdfast.errors import ConfigError, DataError
from holdfast.training.evaluation.by_group.exports import metric_frame, to_arrow, to_pandas
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics

CASES = 25


def binary_reference(y, guess, p, w):
    """scikit-learn's and fairlearn's numbers on the examples of one group, nan where a metric has no value."""
    kw = {"sample_weight": w}
    both = len(np.unique(y[w > 0])) == 2
    bins = 15
    number = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p), 0, bins - 1)
    gaps = [abs(np.sum(w[number == k] * (p[number == k] - y[number == k]))) for k in range(bins)]
    true, false = w[y == 1].sum(), w[y == 0].sum()
    return {
        "accuracy": sk.accuracy_score(y, guess, **kw),
        "recall": sk.recall_score(y, guess, zero_division=np.nan, **kw),
        "precision": sk.precision_score(y, guess, zero_division=np.nan, **kw),
        "f1": sk.f1_score(y, guess, zero_division=np.nan, **kw),
        "selection_rate": fair.selection_rate(y, guess, **kw),
        "false_positive_rate": fair.false_positive_rate(y, guess, **kw) if false else math.nan,
        "false_negative_rate": fair.false_negative_rate(y, guess, **kw) if true else math.nan,
        "auroc": sk.roc_auc_score(y, p, **kw) if both else math.nan,
        "log_loss": sk.log_loss(y, p, labels=[0, 1], **kw),
        "brier": sk.brier_score_loss(y, p, labels=[0, 1], **kw),
        "calibration_error": sum(gaps) / w.sum(),
    }


def same(ours, theirs):
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12, nan_ok=True)


def random_case(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    y = (rng.random(n) < rng.random()).astype(int)
    y[rng.integers(n)] = 1 - y[0] if n > 1 else y[0]
    p = np.round(rng.random(n), int(rng.integers(1, 4)))  # ties and values at the edges of bins
    weights = rng.integers(1, 4, n).astype(float) if seed % 3 == 0 else np.ones(n)
    sex = pd.Categorical(rng.choice(["f", "m"], n), categories=["f", "m", "x"])  # nobody is x
    tags = [list(rng.choice(["a", "b", "c"], rng.integers(0, 4), replace=False)) for _ in range(n)]
    tags[0] = ["a"]
    return y, p, weights, {"sex": sex, "tags": tags}


@pytest.mark.soak
def test_two_classes_agree_with_scikit_learn_and_fairlearn_on_random_predictions(seed):
    """Cases with an empty group, overlapping groups and their intersections; a soak goes on to others.

    scikit-learn computes for nearly half a second on each.
    """
    for case in range(CASES * seed, CASES * (seed + 1)):
        y, p, w, groups = random_case(case)
        if len(set(y)) < 2:
            continue
        guess = (p >= 0.5).astype(int)
        names = list(binary_reference(y, guess, p, w))
        report = GroupMetrics.of_classes(y, probabilities=p, groups=groups, metrics=names, weights=w, draws=0)
        members = {
            **{("sex", s): np.asarray(groups["sex"] == s) for s in "fmx"},
            **{("tags", t): np.array([t in some for some in groups["tags"]]) for t in "abc"},
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same({k: v.value for k, v in report.overall.values.items()}, binary_reference(y, guess, p, w))
            for group in report.groups:
                keys = zip(group.attributes, group.levels, strict=True)
                inside = np.logical_and.reduce([members[key] for key in keys])
                assert group.count == inside.sum()
                part = (column[inside] for column in (y, guess, p, w))
                wanted = binary_reference(*part) if inside.any() else dict.fromkeys(names, math.nan)
                same({k: v.value for k, v in group.values.items()}, wanted)
            sex = np.asarray(groups["sex"])
            frame = metric_frame(report, "sex")
            differences, ratios = frame.difference(), frame.ratio()
            for name in names:
                same(report.difference(name, "sex"), differences[name])
                if not np.isnan(frame.by_group[name]).any() and frame.by_group[name].max() > 0:
                    same(report.ratio(name, "sex"), ratios[name])
            kw = {"sensitive_features": sex, "sample_weight": w}
            ours = report.parity("sex")
            same(ours["demographic_parity_difference"], fair.demographic_parity_difference(y, guess, **kw))
            if all({0, 1} <= set(y[sex == s]) for s in set(sex)):
                same(ours["equal_opportunity_difference"], fair.equal_opportunity_difference(y, guess, **kw))
                same(ours["equalized_odds_difference"], fair.equalized_odds_difference(y, guess, **kw))


def test_several_classes_agree_with_scikit_learn():
    for seed in range(40):
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
    for seed in range(60):
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
    report = GroupMetrics.of_classes(y, guess, groups=groups, metrics={"kappa": sk.cohen_kappa_score})
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
