import pytest

from holdfast.report.pages.side_by_side import in_lines, shared_facts, side_by_side


def test_facts_are_shared_where_all_runs_agree():
    facts = [{"data": "digits", "seed": "0", "model": ""}, {"data": "digits", "seed": "1", "model": ""}]
    assert shared_facts(facts) == {"data", "model"}
    assert side_by_side(facts, None).title == "digits"


def test_a_single_run_shares_nothing_and_no_run_has_no_title():
    assert shared_facts([{"data": "digits"}]) == set()
    assert not side_by_side([{"data": "digits"}], None).title
    assert side_by_side([], "caption").title is None


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("paper=ruled / ink=blue", ["paper=ruled /", "ink=blue"]),
        ("landbird / water", ["landbird / water"]),
        ("hospital=St. Mary, ward=emergency", ["hospital=St.", "Mary, ward=", "emergency"]),
        ("one_long_word_without_an_end/x", ["one_long_word_without_an_end/", "x"]),
        ("", [""]),
    ],
)
def test_a_name_ends_its_lines_between_words(name, lines):
    assert in_lines(name, 16).split("\n") == lines
