"""What all pages are put together from."""

import re

import pytest

from holdfast.errors import CheckpointError
from holdfast.report.html.markup import tag
from holdfast.report.html.page import (
    commands_to_copy,
    findings,
    headline,
    hero,
    large_number,
    opening,
    section,
    write_page,
)
from holdfast.report.html.tables import sortable_row


def test_a_page_is_written_whole_without_the_parts_that_are_none(tmp_path):
    path = write_page(tmp_path / "page.html", "a < b", section("One", tag("p", "text"), id_="one"), None)
    text = path.read_text()
    assert path == tmp_path / "page.html"
    assert "<title>a &lt; b</title>" in text and "None" not in re.sub("<style>.*</style>|<script>.*</script>", "", text)
    assert text.startswith("<!DOCTYPE html>") and text.count("<section") == 1


def test_a_page_that_can_not_be_written_leaves_the_earlier_one(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(CheckpointError):
        write_page(tmp_path / "page.html", "title")
    assert (tmp_path / "page.html").is_dir()


def test_the_opening_of_a_run_is_that_of_any_page_with_its_status(tmp_path):
    (tmp_path / "run").mkdir()
    run = headline(tmp_path / "run", "finished", "digits", [tag("b", "erm")], None)
    assert run == opening("holdfast run run", "finished", "digits", [tag("b", "erm")], None, class_="status finished")
    assert '<span class="status finished">finished</span>' in run and "<h1>digits</h1>" in run


def test_data_can_not_break_out_of_the_large_number_or_the_findings():
    large = large_number("<what>", "1", "%", ["<who>", None])
    assert large_number("w", "0", None, ["x"]).count("small") == 0
    block = hero(large, findings("<script>", None, tag("b", "bold")))
    assert "<script>" not in block and "<who>" not in block and "<what>" not in block
    assert block.count("<li>") == 2 and "<li><b>bold</b></li>" in block


def test_commands_stand_under_what_they_are_for():
    assert [str(part)[:4] for part in commands_to_copy({"Train": "fit", "Look": "report"})] == ["<h3>", "<pre"] * 2
    assert commands_to_copy({}) == []


def test_a_sortable_row_sorts_by_its_values_and_what_is_missing_sorts_as_empty():
    row = sortable_row("a & b", [("1,000", 1000), ("-", None)], flag="worst", class_="bad")
    assert 'data-value="a &amp; b"' in row and 'data-value="1000"' in row and 'data-value=""' in row
    assert row.startswith('<tr class="bad">') and "worst" in row
