"""`holdfast evaluate`: models of scikit-learn and XGBoost, regression, very many groups, our own runs, wrong input."""

import csv
import importlib.util
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairlearn import metrics as fair
from sklearn import metrics as sk
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from holdfast.cli.main import main
from tests.report.reading import read_page


@pytest.fixture(autouse=True)
def empty(somewhere_else):
    """In an empty folder."""


def xgboost_model():
    pytest.importorskip("xgboost")
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1)


MODELS = {
    "scikit-learn": lambda: LogisticRegression(max_iter=200),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=10),
    "xgboost": xgboost_model,
}


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    x, y = make_classification(n, 6, n_informative=3, random_state=seed, flip_y=0.2)
    return x, y, {"sex": rng.choice(["f", "m"], n), "age": rng.integers(18, 90, n)}


def written(name="t.parquet"):
    """The machine-readable table as numbers by group and metric."""
    rows = pq.read_table(name).to_pylist()
    return {(tuple(row["attributes"]), tuple(row["group"]), row["metric"]): row for row in rows}


def same(ours, theirs):
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", list(MODELS))
def test_a_models_predictions_give_fairlearns_and_scikit_learns_numbers(name):
    x, y, who = people(600)
    model = MODELS[name]().fit(x[:300], y[:300])
    p, guess = model.predict_proba(x[300:])[:, 1].astype(float), model.predict(x[300:])
    y, sex, age = y[300:], who["sex"][300:], who["age"][300:]
    words = np.array(["denied", "granted"])
    table = {"y": words[y], "guess": words[guess], "p": p, "sex": sex, "age": age}
    pq.write_table(pa.table(table), "scores.parquet")
    asked = ["--label", "y", "--predicted", "guess", "--probability", "p", "--group", "sex", "--group", "age:3"]
    command = ["evaluate", "scores.parquet", *asked, "--draws", "20", "--out", "page.html", "--table", "t.parquet"]
    assert main(command) == 0
    ours = written()
    metrics = {
        "accuracy": sk.accuracy_score, "recall": sk.recall_score, "precision": sk.precision_score, "f1": sk.f1_score,
        "selection_rate": fair.selection_rate, "false_positive_rate": fair.false_positive_rate,
    }  # fmt: skip
    cut = pd.cut(age, [-math.inf, *_edges(ours), math.inf], right=False)
    for attribute, column in (("sex", sex), ("age", cut)):
        frame = fair.MetricFrame(metrics=metrics, y_true=y, y_pred=guess, sensitive_features=column)
        best = frame.by_group.max()
        for place, group in enumerate(frame.by_group.index):
            level = group if attribute == "sex" else _levels(ours)[place]
            inside = np.asarray(column == group)
            for metric in metrics:
                same(ours[(attribute,), (level,), metric]["value"], frame.by_group[metric][group])
            row = ours[(attribute,), (level,), "recall"]
            same(row["difference"], frame.by_group["recall"][group] - best["recall"])
            same(row["ratio"], frame.by_group["recall"][group] / best["recall"])
            same(ours[(attribute,), (level,), "auroc"]["value"], sk.roc_auc_score(y[inside], p[inside]))
            same(ours[(attribute,), (level,), "log_loss"]["value"], sk.log_loss(y[inside], p[inside]))
    same(ours[(), (), "accuracy"]["value"], sk.accuracy_score(y, guess))
    page = read_page(open("page.html").read())  # noqa: PTH123, SIM115
    odds = fair.equalized_odds_difference(y, guess, sensitive_features=sex)
    parity = fair.demographic_parity_difference(y, guess, sensitive_features=sex)
    row = page.one("section", id="gaps").all("table")[1].all("tbody")[0].all("tr")[0].all("td")
    assert (row[0].text, row[3].text) == (f"{parity:.3f}", f"{odds:.3f}")
    assert page.one("section", id="calibration")
    assert "command" not in page.text and "holdfast evaluate scores.parquet" in page.text


def _levels(ours):
    return list(dict.fromkeys(group[0] for attributes, group, _ in ours if attributes == ("age",)))


def _edges(ours):
    return [float(level.removeprefix(">=").partition("..")[0]) for level in _levels(ours)[1:]]


def test_xgboost_is_tried_where_it_is_installed():
    assert importlib.util.find_spec("xgboost") is not None, "install it with `make` or pip install --no-deps xgboost"


def test_a_regression_of_strings_of_towns():
    x, _, who = people(200)
    price = x @ np.arange(6) * 10 + 100.25
    guess = Ridge().fit(x[:100], price[:100]).predict(x) + np.where(who["sex"] == "f", 5.0, 0.0)
    with open("prices.csv", "w", newline="") as file:  # noqa: PTH123
        rows = csv.writer(file)
        rows.writerow(["price", "guess", "town"])
        rows.writerows(zip(price.tolist(), guess.tolist(), who["sex"], strict=True))
    command = ["evaluate", "prices.csv", "--label", "price", "--predicted", "guess", "--group", "town"]
    assert main([*command, "--draws", "20", "--table", "t.parquet"]) == 0
    ours, inside = written(), who["sex"] == "f"
    same(ours[("town",), ("f",), "mae"]["value"], sk.mean_absolute_error(price[inside], guess[inside]))
    same(ours[("town",), ("f",), "r2"]["value"], sk.r2_score(price[inside], guess[inside]))
    page = read_page(open("prices-by-group.html").read())  # noqa: PTH123, SIM115
    assert "town: f" in page.one("header").text and "overlap" in page.one("header").text


def test_a_thousand_groups_are_folded_and_any_is_found(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 6000)
    guess = np.where(rng.random(6000) < 0.8, y, 1 - y)
    pq.write_table(pa.table({"y": y, "p": guess, "zip": rng.integers(0, 1000, 6000)}), "zip.parquet")
    asked = ["--label", "y", "--predicted", "p", "--group", "zip", "--metric", "accuracy", "--table", "t.csv"]
    assert main(["evaluate", "zip.parquet", *asked]) == 0
    page = read_page(open("zip-by-group.html").read())  # noqa: PTH123, SIM115
    section = page.one("section", id="by-0")
    assert len(section.all("tbody")[0].all("tr")) == 100
    (box,) = [one for one in section.all("div") if "data-find" in one.attributes]
    assert len(json.loads(box.attributes["data-find"])) == len(set(pq.read_table("zip.parquet")["zip"].to_pylist()))
    groups = len(set(pq.read_table("zip.parquet")["zip"].to_pylist()))
    assert sum(1 for _ in open("t.csv")) == 1 + 1 + groups > 900  # noqa: PTH123, SIM115


def test_mistakes_of_the_worst_group_are_shown_with_their_texts():
    table = {
        "y": [0, 1] * 20, "p": [0, 1] * 10 + [1, 0] * 10, "part": ["good"] * 20 + ["bad"] * 20,
        "text": [f"message {row}" for row in range(40)],
    }  # fmt: skip
    pq.write_table(pa.table(table), "llm.parquet")
    asked = ["--label", "y", "--predicted", "p", "--group", "part", "--metric", "accuracy", "--show", "text"]
    assert main(["evaluate", "llm.parquet", *asked]) == 0
    shown = read_page(open("llm-by-group.html").read()).one("section", id="examples")  # noqa: PTH123, SIM115
    assert "message 20" in shown.text and "message 19" not in shown.text


def test_a_run_is_judged_by_its_own_groups_and_by_columns_of_its_table(capsys):
    rng = np.random.default_rng(0)
    n = 400
    age, ward = rng.integers(20, 90, n), rng.choice(["north", "south"], n)
    ill = (age + rng.normal(0, 10, n) > 55).astype(int)
    table = pa.table({"age": age, "pressure": rng.normal(size=n), "ward": ward, "ill": ill})
    pq.write_table(table, "ward.parquet")
    pq.write_table(table.slice(0, 100), "new.parquet")
    fit = ["fit", "--data", "ward.parquet", "--label", "ill", "--attribute", "ward", "--epochs", "1", "--out", "run"]
    assert main([*fit, "--threads", "1"]) == 0
    assert main(["evaluate", "run", "--draws", "20", "--table", "t.parquet"]) == 0
    ours, results = written(), json.loads(open("run/results.json").read())["test"]  # noqa: PTH123, SIM115
    for group in results["groups"]:
        if group["count"]:
            same(ours[("group",), (group["name"],), "accuracy"]["value"], group["accuracy"])
    again = ["evaluate", "run", "new.parquet", "--group", "age:2", "--group", "ward", "--draws", "0", "--show", "age"]
    assert main([*again, "--table", "again.parquet"]) == 0
    first = {row["group"][0]: row["count"] for row in pq.read_table("again.parquet").to_pylist() if row["group"]}
    assert first["north"] == int((ward[:100] == "north").sum())
    capsys.readouterr()
    assert main(["evaluate", "run", "--label", "ill"]) == 2
    assert "a run knows its labels" in capsys.readouterr().err
    assert main(["evaluate", "run", "--group", "wrd", "--overwrite"]) == 2
    assert "no column 'wrd'; did you mean 'ward'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.csv", "--label", "y"], "there is nothing at missing.csv"),
        (["t.csv"], "--label COLUMN"),
        (["t.csv", "--label", "y"], "--group COLUMN"),
        (["t.csv", "--label", "y", "--group", "g"], "--predicted COLUMN"),
        (["t.csv", "more.csv", "--label", "y"], "DATA is for the model of a run"),
        (["t.csv", "--label", "y", "--client", "3"], "--client is for the model of a run"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--metric", "recal"], "did you mean 'recall'"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--metric", "auroc"], "needs probabilities"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--group", "g"], "given twice"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--out", "page.pdf"], "is written as .html"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--table", "t.xlsx"], "tables are written as"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--table", "t.csv"], "say --overwrite"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--depth", "0"], "--depth is 0"),
        (["t.csv", "--label", "y", "--predicted", "p", "--group", "g", "--show", "txt"], "no column 'txt'"),
    ],
)
def test_wrong_input_is_a_sentence_and_leaves_nothing(words, sentence, capsys, tmp_path):
    (tmp_path / "t.csv").write_text("y,p,g\n0,0,a\n1,0,b\n1,1,a\n")
    assert main(["evaluate", *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def _said(capsys, *words):
    code = main(["evaluate", "p.csv", "--label", "y", "--draws", "5", "--overwrite", *words])
    shown = capsys.readouterr()
    return code, " ".join((shown.out + shown.err).split())


def _binary(n=60):
    rng = np.random.default_rng(0)
    p = rng.random(n)
    day = pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    table = {"y": np.where(p > 0.5, "yes", "no"), "p_yes": p, "p_no": 1 - p, "day": day, "g": rng.choice(["a", "b"], n)}
    pd.DataFrame({**table, **{f"c{i}": 0 for i in range(12)}}).to_csv("p.csv", index=False)


def test_one_column_that_is_called_after_the_other_class_is_refused(capsys):
    _binary()
    code, said = _said(capsys, "--probability", "p_no", "--group", "g")
    assert code == 2 and "'p_no' is called after 'no'; give the column of 'yes', or say --positive no" in said
    assert _said(capsys, "--probability", "p_no", "--positive", "no", "--group", "g")[0] == 0
    code, said = _said(capsys, "--probability", "p_yes", "--group", "g")
    assert code == 0 and "100.0%" in said


def test_dates_are_cut_and_named_as_dates(capsys):
    _binary()
    code, said = _said(capsys, "--probability", "p_yes", "--group", "day")
    assert code == 2 and "holds dates; cut them at their quantiles: day:4" in said
    code, said = _said(capsys, "--probability", "p_yes", "--group", "day:2")
    assert code == 0 and "│ <2024-" in said


def test_a_list_of_columns_says_how_many_more_there_are(capsys):
    _binary()
    assert "and 5 more" in _said(capsys, "--probability", "p_yes")[1]
