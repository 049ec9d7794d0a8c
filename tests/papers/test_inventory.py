"""The list of the documents' tables and figures names no experiment that is not there, and leaves no number out."""

from __future__ import annotations

import re

import pytest

from holdfast.papers.engine.catalog import every_experiment
from holdfast.papers.inventory import DOCUMENTS

#: How far each document counts: by chapter where numbers have one; chapter 9 is the appendix of all chapters.
PAPERS = {
    "Ditto": {"Figure": 9, "Table": 11},
    "Ditto, the earlier version": {"Figure": 4, "Table": 7},
    "Personalized FL with spurious features": {"Figure": 8, "Table": 5},
    "PDE": {"Figure": 7, "Table": 11},
}
DISSERTATION = {
    "Figure": {2: 5, 3: 13, 4: 6, 5: 3, 6: 6, 7: 6, 9: 14},
    "Table": {2: 3, 3: 2, 4: 4, 5: 4, 6: 6, 7: 5, 9: 19},
}


def test_experiments_that_are_named_are_declared():
    declared = {experiment.name for experiment in every_experiment()}
    named = {name for items in DOCUMENTS.values() for item in items for name in item.experiments}
    assert named <= declared


def test_every_item_has_an_experiment_or_a_reason():
    for items in DOCUMENTS.values():
        for item in items:
            assert bool(item.experiments) != bool(item.why_not), item


@pytest.mark.parametrize("document", PAPERS)
def test_no_number_of_a_paper_is_left_out(document):
    names = [item.name for item in DOCUMENTS[document]]
    expected = {f"{kind} {n}" for kind, last in PAPERS[document].items() for n in range(1, last + 1)}
    assert set(names) == expected
    assert len(names) == len(expected)


def test_no_number_of_the_dissertation_is_left_out():
    chapters = [items for document, items in DOCUMENTS.items() if document.startswith("Dissertation")]
    names = [item.name for items in chapters for item in items]
    expected = {
        f"{kind} {chapter}.{n}"
        for kind, by_chapter in DISSERTATION.items()
        for chapter, last in by_chapter.items()
        for n in range(1, last + 1)
    }
    assert set(names) == expected
    assert len(names) == len(expected)
    assert all(re.fullmatch(r"(Table|Figure) [2-79]\.\d+", name) for name in names)
