"""The generated parts of the documentation say what the results files say."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
from holdfast.papers.fingerprint import Fingerprint

from holdfast.papers.engine.catalog import EXPERIMENTS
from holdfast.papers.engine.execute import Outcome
from holdfast.papers.engine.results import Results, collect, write_results
from holdfast.papers.spare import TABLE_5_1
from tests.docs.pages import ROOT

_spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


def test_committed_pages_are_what_the_results_say():
    outdated = [str(page) for page, text in generate.pages().items() if not page.exists() or page.read_text() != text]
    assert not outdated, f"run `python docs/generate.py`: {outdated}"


@pytest.fixture
def folders(tmp_path):
    page = tmp_path / "docs" / "methods" / "erm.md"
    page.parent.mkdir(parents=True)
    page.write_text("before\n\n<!-- results: spare/table5.1.cpu -->\nold\n<!-- end results -->\n\nafter\n")
    cells = TABLE_5_1.cells_at("cpu")
    outcomes = [Outcome(cell.name, 0, {"worst_group": 12.25, "average": 50.0}, 3.0) for cell in cells]
    results = Results(
        experiment=TABLE_5_1.name,
        scale="cpu",
        commit=None,
        date="2026-01-01T00:00:00+00:00",
        seeds=(0,),
        cells=collect(TABLE_5_1, cells, outcomes),
        claims=(),
        fingerprint=Fingerprint("", {}),
        environment={},
    )
    return page, tmp_path / "docs", tmp_path / "results", results


def test_a_block_gets_the_table_of_its_results_file(folders):
    page, docs, results_dir, results = folders
    write_results(results, results_dir)
    text = generate.pages(docs, results_dir)[page]
    assert "| cmnist/erm | 12.2 | 0.0 ± 0.0 | 50.0 | 20.1 ± 0.2 | - | 3 |" in text
    assert "(../results/spare/table5.1.cpu.md)" in text
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text


def test_every_results_file_gets_a_page_that_the_index_links_to(folders):
    _, docs, results_dir, results = folders
    write_results(results, results_dir)
    made = generate.pages(docs, results_dir)
    assert docs / "results" / "spare" / "table5.1.cpu.md" in made
    assert "(spare/table5.1.cpu.md)" in made[docs / "results" / "README.md"]


def test_the_figure_of_an_experiment_is_made_beside_its_results_and_shown_on_the_page(folders, monkeypatch):
    _, docs, results_dir, results = folders
    monkeypatch.setitem(EXPERIMENTS, TABLE_5_1.name, replace(TABLE_5_1, figure=lambda results: f"<svg>{results.date}"))
    write_results(results, results_dir)
    made = generate.pages(docs, results_dir)
    assert made[results_dir / "spare" / "table5.1.cpu.svg"] == "<svg>2026-01-01T00:00:00+00:00"
    page = made[docs / "results" / "spare" / "table5.1.cpu.md"]
    assert "](../../../results/spare/table5.1.cpu.svg)" in page
    assert ".svg" not in made[docs / "results" / "README.md"]


def test_without_a_results_file_a_block_says_how_to_measure(folders):
    page, docs, results_dir, _ = folders
    assert "holdfast reproduce spare/table5.1 --scale cpu" in generate.pages(docs, results_dir)[page]


def test_filling_twice_changes_nothing(folders):
    page, docs, results_dir, results = folders
    write_results(results, results_dir)
    once = generate.pages(docs, results_dir)[page]
    page.write_text(once)
    assert generate.pages(docs, results_dir)[page] == once
