"""A page on very many classes is small, shows both ends, and finds any other by its name."""

import json

import numpy as np
import pytest
import torch

from holdfast.data import Examples, Splits
from holdfast.report import write_report
from holdfast.report.pages.run_record import RunRecord
from holdfast.training import Run, Training, fit
from holdfast.training.evaluation.folding import FOLDED_ABOVE

CLASSES = 400


def part(seed, first):
    labels = torch.arange(CLASSES).repeat(3)
    inputs = torch.nn.functional.one_hot(labels, CLASSES).float()
    inputs += 0.4 * torch.randn(inputs.shape, generator=torch.Generator().manual_seed(seed))
    names = [f"species {label}" for label in range(CLASSES)]
    return Examples.of(inputs, labels, class_names=names, ids=torch.arange(first, first + len(labels)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(0)
    run = Run.create(tmp_path_factory.mktemp("runs") / "many", {"data": "birds"})
    splits = Splits("birds", part(0, 0), part(1, 10_000), part(2, 20_000))
    fit(torch.nn.Linear(CLASSES, CLASSES), splits, None, Training(epochs=2, learning_rate=0.3), run=run)
    write_report(run, splits)
    return run


def test_a_record_has_both_ends_and_the_tables_have_everything(run):
    assert FOLDED_ABOVE < CLASSES
    stored = json.loads((run.path / "results.json").read_text())["test"]
    assert len(stored["groups"]) == 64 and stored["folded"]["groups"] == CLASSES and not stored["predicted"]
    epochs = [line for line in (run.path / "metrics.jsonl").read_bytes().splitlines() if b'"event": "epoch"' in line]
    assert len(epochs) == 2 and max(map(len, epochs)) < 25_000
    report, columns = RunRecord.of(run).report, run.predictions()
    right = columns["label"] == columns["predicted"]
    for label, score in enumerate(report.by_group):
        assert (score.count, score.correct) == (3, int(right[columns["label"] == label].sum()))
    confusion = np.zeros((CLASSES, CLASSES), int)
    np.add.at(confusion, (columns["label"], columns["predicted"]), 1)
    assert (report.confusion == confusion).all()
    assert report.group_mean == pytest.approx(stored["folded"]["group_mean"])
    assert stored["worst_accuracy"] == report.worst_accuracy


def test_a_box_on_the_page_finds_any_class(run, browser):
    page = browser.new_page()
    page.goto((run.path / "report.html").as_uri())
    rows = page.locator("#groups tbody tr")
    assert rows.count() == 100
    page.locator("input[type=search]").fill("species 123")
    assert rows.count() == 1 and rows.first.locator("th").inner_text() == "species 123"
    score = RunRecord.of(run).report.by_group[123]
    cells = [cell.inner_text() for cell in rows.first.locator("td").all()]
    assert cells[:2] == ["3", str(score.correct)]
    assert cells[3] == f"{score.low:.1%} to {score.high:.1%}"
    page.locator("input[type=search]").fill("nowhere")
    assert rows.count() == 0 and "0 found" in page.locator("output").inner_text()
    page.locator("input[type=search]").fill("")
    assert rows.count() == 100
    page.close()


def test_the_page_is_small(run):
    assert (run.path / "report.html").stat().st_size < 400_000
