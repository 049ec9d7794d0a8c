"""Every sentence of the threat model is backed by a test: those that it names are there."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT, prose

PAGE = ROOT / "docs" / "guides" / "threat-model.md"


def known_tests() -> set[str]:
    trees = (ast.parse(file.read_text()) for file in (ROOT / "tests").rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_the_threat_model_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", prose(PAGE)))
    assert len(named) > 30
    assert sorted(named - known_tests()) == []


def test_every_row_of_an_attackers_table_names_a_test():
    rows = [line for line in prose(PAGE).splitlines() if line.startswith("| ") and line.count("|") in (4, 5)]
    for row in rows:
        last = row.split("|")[-2].strip()
        assert last in ("test", "---") or re.fullmatch(r"`test_\w+`(, `test_\w+`)*", last), row
    assert len(rows) > 45
