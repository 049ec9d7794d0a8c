"""Hundreds of tables, judged by `holdfast evaluate`; every number must be scikit-learn's and fairlearn's.

``python -m tests.soak.evaluations --cases 500`` runs them and writes results/soak/evaluations.log (with ``--first`` it
adds to it); a sample runs in ``make test`` and others in ``make soak`` (test_evaluations.py). A case has a number that
decides its kind, file format, weights and its random numbers: ``--first 123 --cases 1`` repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import io
import math
import os
import tempfile
import time
import warnings
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from fairlearn import metrics as fair
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from holdfast.cli.main import main as holdfast
from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics
from tests.soak.journal import commit
from tests.training.evaluation.by_group import reference
from tests.training.evaluation.by_group.reference import same

LOG = Path(__file__).parents[2] / "results" / "soak" / "evaluations.log"
MISSING = "(missing)"
#: Lower is better, nearest to zero is better; of all others higher is, or neither, and then the highest is compared to.
LOWER = {"false_positive_rate", "false_negative_rate", "log_loss", "brier", "calibration_error", "mae", "mse", "rmse"}
NEAREST = {"mean_error"}


class Case:
    """Predictions of one model, attributes, and what scikit-learn and fairlearn say of any part of them."""

    def __init__(self, number: int) -> None:
        self.rng = np.random.default_rng(number)
        self.n = int(self.rng.integers(3, 80))
        self.kind = list(KINDS)[number % len(KINDS)]
        self.y, self.guess, self.p = KINDS[self.kind](self)
        self.format = ("parquet", "csv", "jsonl")[number // len(KINDS) % 3]
        self.weights = self.rng.integers(1, 4, self.n).astype(float) if number % 5 == 0 else np.ones(self.n)
        self.sex = self.rng.choice(np.array(["f", "m", None], object), self.n)
        self.town = np.where(self.y == self.y[0], "one class's", "another") if self.kind != "XGBoost, quantities" else (
            self.rng.choice(["north", "south"], self.n))  # fmt: skip
        self.tags = [list(self.rng.choice(["a", "b", "c"], self.rng.integers(0, 4), replace=False)) for _ in self.y]
        self.sex[0], self.tags[0] = "f", ["a"]
        self._known: dict[bytes, dict[str, float]] = {}

    def members(self) -> dict[str, dict[str, np.ndarray]]:
        """Who is in which group; groups by tags overlap, and nobody is in some combinations."""
        filled = np.array([word or MISSING for word in self.sex])
        every = sorted({tag for tags in self.tags for tag in tags})
        return {
            "sex": {level: filled == level for level in sorted(set(filled))},
            "town": {level: self.town == level for level in sorted(set(self.town))},
            "tags": {tag: np.array([tag in some for some in self.tags]) for tag in every},
        }

    def wanted(self, rows: np.ndarray) -> dict[str, float]:
        """The metrics of the examples of a mask, computed once: scikit-learn takes its time."""
        key = rows.tobytes()
        if key not in self._known:
            self._known[key] = self._measured(rows) if rows.any() else {}
        return self._known[key]

    def _measured(self, rows: np.ndarray) -> dict[str, float]:
        y, guess, w = self.y[rows], self.guess[rows], self.weights[rows]
        if self.p is None:
            of = reference.of_quantities if self.y.dtype.kind == "f" else reference.of_predicted_classes
            return of(y, guess, w)
        of = reference.of_two_classes if self.p.ndim == 1 else reference.of_several_classes
        return of(y, guess, self.p[rows], w)

    def write(self, folder: Path) -> list[str]:
        """The table in `folder`, and the command that judges it."""
        words = self.y.dtype.kind == "i"
        columns: dict[str, Any] = {
            "y": [f"class {k}" for k in self.y] if words else self.y,
            "said": [f"class {k}" for k in self.guess] if words else self.guess,
            "sex": list(self.sex), "town": self.town, "w": self.weights,
        }  # fmt: skip
        asked = ["--label", "y", "--predicted", "said", "--weight", "w", "--group", "sex", "--group", "town"]
        if self.p is not None and self.p.ndim == 1:
            columns["p"] = self.p
            asked += ["--probability", "p"]
        elif self.p is not None:
            columns |= {f"p_class {k}": self.p[:, k] for k in range(self.p.shape[1])}
            asked += ["--probability", "p_*"]
        as_text = self.format == "csv"
        columns["tags"] = [";".join(tags) for tags in self.tags] if as_text else self.tags
        asked += ["--group", "tags:list" if as_text else "tags"]
        table, file = pa.table(columns), folder / f"t.{self.format}"
        if self.format == "parquet":
            pq.write_table(table, file)
        elif as_text:
            pa.csv.write_csv(table, file)
        else:
            frame = table.to_pandas()
            frame["tags"] = self.tags
            frame.to_json(file, orient="records", lines=True, double_precision=15)
            self._as_written(frame, file)
        task = ["--task", "classes" if words else "regression"]
        metrics = [word for name in self.wanted(np.ones(self.n, np.bool_)) for word in ("--metric", name)]
        out = ["--out", str(folder / "page.html"), "--table", str(folder / "by-group.parquet"), "--draws", "0"]
        return ["evaluate", str(file), *asked, *task, *metrics, *out]

    def _as_written(self, frame: pd.DataFrame, file: Path) -> None:
        """Pandas writes fifteen digits to JSON: what it wrote are the predictions."""
        read = pd.read_json(file, lines=True, precise_float=True, dtype={"y": False, "said": False})
        self._known.clear()
        if self.y.dtype.kind == "f":
            self.y, self.guess = read["y"].to_numpy(), read["said"].to_numpy()
        elif self.p is not None:
            names = [name for name in frame.columns if name == "p" or name.startswith("p_")]
            self.p = read[names].to_numpy(np.float64).squeeze(1) if names == ["p"] else read[names].to_numpy(np.float64)
            if self.p.ndim == 2:
                self.p = self.p / self.p.sum(1, keepdims=True)


def _at_random(case: Case, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels in which every class occurs, and probabilities with ties and values at the edges of bins."""
    y = case.rng.integers(0, classes, case.n)
    y[:classes] = np.arange(classes)
    return y, np.round(case.rng.random(case.n), int(case.rng.integers(1, 4)))


def two_at_random(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    y, p = _at_random(case, 2)
    return y, (p >= 0.5).astype(int), p


def several_at_random(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    y, _ = _at_random(case, 3)
    p = case.rng.dirichlet(np.ones(3), case.n)
    return y, p.argmax(1), p


def words_only(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    """What a language model answers: a class, and no probability."""
    y, _ = _at_random(case, 2)
    return y, np.where(case.rng.random(case.n) < 0.7, y, 1 - y), None


def _data(case: Case, classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_classification(
        120 + case.n, 6, n_informative=4, n_classes=classes, flip_y=0.2, random_state=int(case.rng.integers(2**31))
    )
    y[-classes:], y[:classes] = np.arange(classes), np.arange(classes)
    return x, y


def _predicted(case: Case, model: Any, classes: int) -> tuple[np.ndarray, np.ndarray, Any]:
    x, y = _data(case, classes)
    model.fit(x[:120], y[:120])
    p, guess = model.predict_proba(x[120:]).astype(np.float64), np.asarray(model.predict(x[120:])).astype(int)
    return y[120:], guess, p[:, 1] if classes == 2 else p / p.sum(1, keepdims=True)


def logistic_regression(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    return _predicted(case, LogisticRegression(max_iter=200), 2)


def boosted_trees(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    return _predicted(case, HistGradientBoostingClassifier(max_iter=5), 3)


def xgboost_classes(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    from xgboost import XGBClassifier

    return _predicted(case, XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1), 2)


def xgboost_quantities(case: Case) -> tuple[np.ndarray, np.ndarray, Any]:
    from xgboost import XGBRegressor

    x, _ = _data(case, 2)
    price = x @ np.arange(1.0, 7.0) * 10 + 500.25
    model = XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1).fit(x[:120], price[:120])
    return price[120:], model.predict(x[120:]).astype(np.float64), None


KINDS = {
    "two classes at random": two_at_random,
    "scikit-learn, two classes": logistic_regression,
    "several classes at random": several_at_random,
    "XGBoost, two classes": xgboost_classes,
    "words only": words_only,
    "scikit-learn, three classes": boosted_trees,
    "XGBoost, quantities": xgboost_quantities,
}


def run(number: int, folder: Path) -> tuple[str, Counter[str]]:
    """Judge a case by the command and in Python, and compare every number; its kind and what was compared.

    Raises:
        AssertionError: if a number is another.
    """
    for file in folder.iterdir():
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = Case(number)
        command = case.write(folder)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            assert holdfast(command) == 0, printed.getvalue()
        rows = pq.read_table(folder / "by-group.parquet").to_pylist()
        named = {(*row["attributes"], "|", *row["group"], "|", row["metric"]): row for row in rows}
        compared = _compare_table(case, named)
        compared += _compare_with_fairlearn(case)
    assert "<html" in (folder / "page.html").read_text()
    return f"{case.kind}, {case.format}", compared


def _compare_table(case: Case, rows: dict[Any, dict[str, Any]]) -> Counter[str]:
    """Counts, values and distances to the best group, of every group by one attribute and by two."""
    members, compared = case.members(), Counter[str]()
    names = list(case.wanted(np.ones(case.n, np.bool_)))
    families: list[tuple[str, ...]] = [(), *[(name,) for name in members], *combinations(members, 2)]
    for family in families:
        groups = {
            levels: np.logical_and.reduce([members[name][level] for name, level in zip(family, levels, strict=True)])
            if family else np.ones(case.n, np.bool_)
            for levels in product(*(members[name] for name in family))
        }  # fmt: skip
        values = {levels: case.wanted(inside) for levels, inside in groups.items()}
        compared["empty groups"] += sum(not inside.any() for inside in groups.values())
        for levels, inside in groups.items():
            compared["groups"] += 1
            for name in names:
                row = rows.pop((*family, "|", *levels, "|", name))
                assert row["count"] == inside.sum()
                value = values[levels].get(name, math.nan)
                same(_number(row["value"]), value)
                compared["values"] += 1
                if family and not math.isnan(value):
                    best = _best(name, [one[name] for one in values.values() if one and not math.isnan(one[name])])
                    # mean errors of the same size and another sign are equally good
                    if not (name in NEAREST and math.isclose(abs(value), abs(best))):
                        same(row["difference"], value - best)
                        same(_number(row["ratio"]), value / best if best > 0 else math.nan)
                        compared["distances"] += 2
    assert not rows, list(rows)[:3]
    return compared


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _best(name: str, values: list[float]) -> float:
    if name in NEAREST:
        return min(values, key=abs)
    return min(values) if name in LOWER else max(values)


def _compare_with_fairlearn(case: Case) -> Counter[str]:
    """MetricFrame's own grouping, differences, ratios and parity gaps, with a category that nobody has."""
    sex = pd.Categorical([word or MISSING for word in case.sex], categories=["f", "m", MISSING, "x"])
    groups = {"sex": sex, "town": case.town}
    quantities = case.y.dtype.kind == "f"
    of = GroupMetrics.of_quantities if quantities else functools.partial(GroupMetrics.of_classes, probabilities=case.p)
    names = list(case.wanted(np.ones(case.n, np.bool_)))
    report = of(case.y, case.guess, groups=groups, metrics=names, weights=case.weights, draws=0)
    compared = Counter({"empty groups": sum(not group.count for group in report.groups)})

    def measured(name: str) -> Any:
        return lambda _y, _guess, rows: case.wanted(np.isin(np.arange(case.n), rows))[name]

    for family in [("sex",), ("town",), ("sex", "town")]:
        frame = fair.MetricFrame(
            metrics={name: measured(name) for name in names}, y_true=case.y, y_pred=case.guess,
            sensitive_features={name: np.asarray(groups[name]) for name in family},
            sample_params={name: {"rows": np.arange(case.n)} for name in names},
        )  # fmt: skip
        differences, ratios = frame.difference(), frame.ratio()
        for group in report.by(*family):
            for name in names:
                key = group.levels if len(family) > 1 else group.levels[0]
                theirs = frame.by_group[name].get(key, math.nan)
                same(group.values[name].value, theirs)
                compared["values"] += 1
        for name in names:
            column = frame.by_group[name].dropna()
            same(report.difference(name, *family), differences[name] if len(column) else math.nan)
            if len(column) and column.max() > 0 and column.min() >= 0:
                same(report.ratio(name, *family), ratios[name])
            compared["distances"] += 2
        if not quantities and len(set(case.y)) == 2 and (case.p is None or case.p.ndim == 1):
            compared["parity gaps"] += _compare_parity(case, report.parity(*family), family, groups)
    return compared


def _compare_parity(case: Case, ours: dict[str, float], family: tuple[str, ...], groups: dict[str, Any]) -> int:
    columns = pd.DataFrame({name: np.asarray(groups[name]) for name in family})
    kw = {"sensitive_features": columns, "sample_weight": case.weights}
    same(ours["demographic_parity_difference"], fair.demographic_parity_difference(case.y, case.guess, **kw))
    same(ours["demographic_parity_ratio"], fair.demographic_parity_ratio(case.y, case.guess, **kw))
    if not all({0, 1} <= set(case.y[rows]) for rows in columns.groupby(list(family)).indices.values()):
        return 2  # fairlearn counts the rate of a group without positives as 0, we leave it out
    same(ours["equal_opportunity_difference"], fair.equal_opportunity_difference(case.y, case.guess, **kw))
    same(ours["equalized_odds_difference"], fair.equalized_odds_difference(case.y, case.guess, **kw))
    theirs = fair.equalized_odds_ratio(case.y, case.guess, **kw)
    if math.isnan(theirs):  # a recall of 0 in every group has no ratio: theirs is nan then, ours that of the other rate
        return 4
    same(ours["equalized_odds_ratio"], theirs)
    return 5


def main() -> None:
    """Run many cases and write the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    kinds, compared, failures, began, at = Counter[str](), Counter[str](), [], time.process_time(), commit()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.first, options.first + options.cases):
            try:
                kind, counts = run(number, Path(folder))
            except AssertionError as error:
                failures.append(f"case {number}: {' '.join(str(error).split())[:300]}")
                print(failures[-1], flush=True)
                continue
            kinds[kind] += 1
            print(number, kind, flush=True)
            compared += counts
    peers = ("scikit-learn", "fairlearn", "xgboost")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in peers)
    seconds = time.process_time() - began
    lines = [
        f"commit {at}, {versions}",
        f"{options.cases} tables of predictions from number {options.first} on, {seconds:.0f} s of processor time",
        f"{len(failures)} failures (a number that is not scikit-learn's or fairlearn's to 1e-9)",
        f"compared: {', '.join(f'{count:,} {what}' for what, count in compared.items())}",
        "", *[f"{count:5}  {kind}" for kind, count in sorted(kinds.items())], *failures,
    ]  # fmt: skip
    with LOG.open("a" if options.first else "w") as file:  # a second half of the cases is added to the first
        file.write("\n".join([*lines, "", ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    main()
