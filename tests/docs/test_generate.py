"""The generated parts of the documentation say what the results files say."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from holdfast.papers.engine import catalog
from holdfast.papers.engine.execute import CellOutcome
from holdfast.papers.engine.store import Store
from holdfast.papers.spare.tables import TABLE_5_1
from tests.docs.pages import ROOT
from tests.papers.engine.test_results import ORIGIN

_spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


def test_committed_pages_are_what_the_results_say():
    outdated = [str(page) for page, text in generate.pages().items() if not page.exists() or page.read_text() != text]
    assert not outdated, f"run `python docs/generate.py`: {outdated}"


def drawn(results):
    return f"<svg>{results.mean('cmnist/erm', 'worst_group')}"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    page = tmp_path / "docs" / "methods" / "erm.md"
    page.parent.mkdir(parents=True)
    page.write_text("before\n\n<!-- results: spare/table5.1.cpu -->\nold\n<!-- end results -->\n\nafter\n")
    found = [
        CellOutcome(cell.name, 0, {"worst_group": 12.25, "average": 50.0}, 3.0, origin=ORIGIN)
        for cell in TABLE_5_1.cells_at("cpu")
    ]

    def measure():
        store = Store(tmp_path / "results", catalog.experiments_of("spare"), "cpu")
        monkeypatch.setattr(store, "judge", lambda: None)
        store.put(store.experiments[TABLE_5_1.name], (0,), found)
        store.write()

    return page, tmp_path / "docs", tmp_path / "results", measure


def test_a_block_gets_the_table_of_its_results_file(folders):
    page, docs, results_dir, measure = folders
    measure()
    text = generate.pages(docs, results_dir)[page]
    assert "| cmnist/erm | 12.2 | 0.0 ± 0.0 | 50.0 | 20.1 ± 0.2 | - | 3 |" in text
    assert "(../results/spare/table5.1.cpu.md)" in text
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text


def test_every_results_file_gets_a_page_that_the_index_links_to(folders):
    _, docs, results_dir, measure = folders
    measure()
    made = generate.pages(docs, results_dir)
    assert docs / "results" / "spare" / "table5.1.cpu.md" in made
    assert "(spare/table5.1.cpu.md)" in made[docs / "results" / "README.md"]


def test_the_figure_of_an_experiment_is_made_beside_its_results_and_shown_on_the_page(folders, monkeypatch):
    _, docs, results_dir, measure = folders
    real = catalog.experiments_of
    others = real("spare")[1:]
    drawn = replace(TABLE_5_1, figure="tests.docs.test_generate:drawn")
    monkeypatch.setattr(generate, "experiments_of", lambda paper: (drawn, *others) if paper == "spare" else real(paper))
    monkeypatch.setattr(catalog, "experiments_of", generate.experiments_of)
    measure()
    made = generate.pages(docs, results_dir)
    assert made[results_dir / "spare" / "table5.1.cpu.svg"] == "<svg>12.25"
    page = made[docs / "results" / "spare" / "table5.1.cpu.md"]
    assert "](../../../results/spare/table5.1.cpu.svg)" in page
    assert ".svg" not in made[docs / "results" / "README.md"]


def test_without_a_results_file_a_block_says_how_to_measure(folders):
    page, docs, results_dir, _ = folders
    assert "holdfast reproduce spare/table5.1 --scale cpu" in generate.pages(docs, results_dir)[page]


def test_filling_twice_changes_nothing(folders):
    page, docs, results_dir, measure = folders
    measure()
    once = generate.pages(docs, results_dir)[page]
    page.write_text(once)
    assert generate.pages(docs, results_dir)[page] == once
