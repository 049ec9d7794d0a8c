"""The page of a federation, and federations side by side."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError
from holdfast.federated import Ditto, FineTuning, LabelPoisoning, Mean, Rounds, Threat, federate
from holdfast.federated.engine.executors import ExecutorChoice
from holdfast.federated.objectives import FedAvg
from holdfast.federated.run_files import FederationSpec, save_outcome
from holdfast.models import build
from holdfast.report import write_report
from holdfast.report.pages.federation.charts import Point, distribution, scatter
from holdfast.report.pages.federation.measure import Measure
from holdfast.report.pages.federation.page import write_comparison
from holdfast.report.pages.federation.record import ClientRows, FederationRecord, ModelRows
from holdfast.training import Run
from holdfast.training.events import Event
from tests.report.reading import read_page

SETTINGS = Rounds(rounds=4, cohort=3, evaluate_every=1, executor="serial", learning_rate=0.1)
CONFIG = {"data": "toy", "model": "softmax", "objective": "fedavg", "aggregate": "mean", "attack": "a1",
          "malicious": 0.2, "personalize": "ditto+finetuning", "seed": 0, "rounds": 4}  # fmt: skip


def toy_clients(clients: int = 10) -> Clients:
    generator = torch.Generator().manual_seed(0)

    def part(size: int) -> ClientPart:
        labels = torch.randint(2, (clients * size,), generator=generator)
        inputs = torch.randn(clients * size, 1, 2, 2, generator=generator) + labels[:, None, None, None]
        return ClientPart.of_counts(inputs, labels, torch.full((clients,), size))

    names = tuple(f"<writer {number}>" for number in range(clients))
    return Clients(part(8), part(4), part(6), 2, names=names)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("runs") / "attacked", CONFIG, kind="federation")
    clients, threat = toy_clients(), Threat(LabelPoisoning(), 0.2)
    outcome = federate(
        clients,
        build("softmax", (1, 2, 2), 2),
        SETTINGS,
        threat=threat,
        personalize=[Ditto(), FineTuning(epochs=1)],
        run=run,
    )
    save_outcome(run, outcome, clients, FederationSpec("toy", "softmax", SETTINGS, FedAvg(), Mean(), threat))
    return run, outcome


def test_the_page_has_every_model_and_every_device(finished):
    run, outcome = finished
    text = write_report(run).read_text()
    page = read_page(text)
    for label, report in outcome.reports.items():
        assert label in text
        assert f"{report.mean:.1%}" in text and f"{report.std:.1%}" in text
    assert text.count(">malicious</span>") == 2
    assert "&lt;writer 3&gt;" in text and "<writer" not in text
    assert "2 of 10 clients attacked by a1" in text
    assert "holdfast federate --config" in text
    assert page is not None


def test_faults_of_a_real_federation_are_listed_and_strangers_words_are_escaped(finished, tmp_path):
    run, outcome = finished
    faults = [{"round": 3, "clients": [4, 7], "kind": "refused", "reason": "it claims <script> examples"}]
    there = replace(outcome, faults=faults, dropped=2, choice=ExecutorChoice("flower", 2))
    copy = Run.create(tmp_path / "real", CONFIG, kind="federation")
    save_outcome(copy, there, toy_clients(), FederationSpec("toy", "softmax", SETTINGS, FedAvg(), Mean(), None))
    text = write_report(copy).read_text()
    assert "flower, 2 nodes" in text and "1 fault in all" in text
    assert "<td>4, 7</td>" in text and "it claims &lt;script&gt; examples" in text
    assert 'id="faults"' not in write_report(run).read_text()


def test_benign_clients_come_worst_first_and_malicious_ones_last(finished):
    run, outcome = finished
    body = write_report(run).read_text().partition('id="table"')[2]
    shown = [int(found) for found in re.findall(r"<th scope=\"row\"[^>]*>.*?writer (\d+)", body)]
    accuracy = outcome.reports["ditto-auto"].scores.accuracy
    malicious = outcome.malicious.tolist()
    assert set(shown[-2:]) == set(malicious)
    benign = [accuracy[place].item() for place in shown[:-2]]
    assert benign == sorted(benign)


def test_an_unfinished_federation_says_how_to_continue(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG, kind="federation")
    assert "there are no numbers yet" in write_report(run).read_text()
    summary = {"mean": 0.5, "pooled": 0.5, "std": 0.1, "worst": 0.2, "worst_tenth": 0.25, "loss": math.nan}
    run.log(Event("start", 0, 0, {"rounds": 4}))
    run.log(Event("epoch", 2, 2, {"global": summary}))
    text = write_report(run).read_text()
    assert "round 2 of 4" in text
    assert "holdfast federate --resume" in text


def test_what_was_logged_beyond_the_point_of_resumption_is_not_shown_twice(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG, kind="federation")
    for kind, number, values in (
        ("start", 0, {}),
        ("epoch", 1, {"global": {"mean": 0.1}}),
        ("epoch", 2, {"global": {"mean": 0.2}}),
        ("start", 1, {}),
        ("epoch", 2, {"global": {"mean": 0.3}}),
    ):
        run.log(Event(kind, number, number, values))
    history = FederationRecord.of(run).history
    assert [(entry["round"], entry["global"]["mean"]) for entry in history] == [(1, 0.1), (2, 0.3)]


def test_the_worst_tenth_of_clients_has_the_accent():
    accuracy = tuple(place / 40 for place in range(40))
    rows = ModelRows(accuracy, accuracy, (None,) * 40)
    clients = ClientRows(("d",) * 40, (True,) * 40, (1,) * 40, (5,) * 40, {"global": rows})
    heights = re.findall(r'height="([\d.]+)" class="bar( worst)?"', distribution(clients, Measure()))
    assert sum(float(height) for height, worst in heights if worst) / sum(float(h) for h, _ in heights) == (
        pytest.approx(0.1, abs=0.005)
    )


def test_names_of_dots_do_not_cover_one_another():
    points = [Point(f"model {place}", 0.9 - place / 1000, 0.1 + place / 1000) for place in range(6)]
    text = scatter(points, "title", "caption", Measure())
    spots = re.findall(r'class="named (\w+)" style="left:[\d.]+%;top:([\d.]+)%"', text)
    for side in ("left", "right"):
        tops = sorted(float(top) for found, top in spots if found == side)
        assert all(later - earlier >= 5 for earlier, later in pairwise(tops))


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """Noisy sums of features in the thousands, so that nobody takes an error for a share."""
    generator = torch.Generator().manual_seed(0)

    def part(size: int) -> ClientPart:
        inputs = torch.randn(10 * size, 3, generator=generator)
        targets = 100 * inputs.sum(1) + 50 * torch.randn(10 * size, generator=generator)
        return ClientPart.of_counts(inputs, targets, torch.full((10,), size))

    run = Run.create(tmp_path_factory.mktemp("runs") / "sums", {**CONFIG, "attack": None}, kind="federation")
    clients = Clients(part(8), part(4), part(6), 0, task="regression")
    outcome = federate(clients, torch.nn.Linear(3, 1), SETTINGS, personalize=[Ditto(0.5)], run=run)
    save_outcome(run, outcome, clients, FederationSpec("toy", "linear", SETTINGS, FedAvg(), Mean(), None))
    return run, outcome


def test_a_regressions_page_has_squared_errors_and_no_percent(regression):
    run, outcome = regression
    page = write_report(run).read_text()
    report = outcome.reports["global"]
    assert f"global: mean {report.mean:.4g}, standard deviation {report.std:.4g}, highest {report.worst:.4g}" in page
    assert "mean squared error of the worst tenth" in page
    assert "accuracy" not in read_page(page).text.lower()
    assert not re.findall(r">[\d.,]+%<", page)


def test_of_a_regression_the_client_with_the_largest_error_comes_first(regression):
    rows = FederationRecord.of(regression[0]).clients
    assert rows is not None
    table = write_report(regression[0]).read_text().split('id="table"')[1]
    first = rows.names[max(range(10), key=lambda place: rows.models["ditto-0.5"].accuracy[place])]
    assert table.index(f">{first}<") == min(table.index(f">{name}<") for name in rows.names)


def test_federations_of_different_tasks_are_no_plane(finished, regression, tmp_path):
    records = [FederationRecord.of(run) for run, _ in (finished, regression)]
    with pytest.raises(ConfigError, match="accuracy, mean squared error"):
        write_comparison(records, tmp_path / "both.html")


def test_federations_side_by_side_are_one_plane(finished, tmp_path):
    record = FederationRecord.of(finished[0])
    page = write_comparison([record, record], tmp_path / "both.html").read_text()
    assert page.count("attacked: ditto-auto") >= 4
    assert 'class="dot group-1"' in page


def test_the_page_works_in_a_browser_and_its_clients_can_be_sorted(finished, browser):
    path = write_report(finished[0])
    tab = browser.new_page()
    problems = []
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(path.resolve().as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.click("#table thead button >> text=Rounds")
    column = tab.eval_on_selector_all("#table tbody tr", "rows => rows.map(row => Number(row.cells[1].dataset.value))")
    assert column == sorted(column)
    assert not problems
    tab.close()
