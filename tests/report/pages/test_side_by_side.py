from holdfast.report.pages.side_by_side import shared_facts, side_by_side


def test_facts_are_shared_where_all_runs_agree():
    facts = [{"data": "digits", "seed": "0", "model": ""}, {"data": "digits", "seed": "1", "model": ""}]
    assert shared_facts(facts) == {"data", "model"}
    assert side_by_side(facts, None).title == "digits"


def test_a_single_run_shares_nothing_and_no_run_has_no_title():
    assert shared_facts([{"data": "digits"}]) == set()
    assert not side_by_side([{"data": "digits"}], None).title
    assert side_by_side([], "caption").title is None
