import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.training.health.check import Check, Finding, Health

BELOW = Check("skill", 0.6, 0.4, "below", "why", "do this")
ABOVE = Check("share", 3.0, None, "above", "why", "do that")


@pytest.mark.parametrize(
    ("check", "value", "verdict"),
    [
        (BELOW, 0.6, "ok"),
        (BELOW, 0.59, "doubtful"),
        (BELOW, 0.4, "doubtful"),
        (BELOW, 0.39, "failed"),
        (BELOW, math.nan, "doubtful"),
        (ABOVE, 3.0, "ok"),
        (ABOVE, 1e9, "doubtful"),
        (ABOVE, math.inf, "doubtful"),
    ],
)
def test_a_value_on_a_limit_is_still_good_and_no_number_is_doubtful(check, value, verdict):
    assert check.verdict(value) == verdict


@given(st.lists(st.floats(0, 1), max_size=6))
def test_the_verdict_is_the_worst_of_the_findings_and_these_come_first(values):
    health = Health.of(BELOW.finding(value, f"it was {value}") for value in values)
    order = ["failed", "doubtful", "ok"]
    ranks = [order.index(finding.verdict) for finding in health.findings]
    assert ranks == sorted(ranks)
    assert health.verdict == (order[min(ranks)] if ranks else "ok")
    assert len(health.concerns) == sum(value < 0.6 for value in values)


def test_the_headline_names_what_failed_and_not_what_is_only_doubtful():
    health = Health.of([BELOW.finding(0.5, "it hardly learned"), BELOW.finding(0.1, "it did not learn")])
    assert health.headline == "This result should not be used, because it did not learn."
    assert Health.of([BELOW.finding(0.5, "it hardly learned")]).headline.startswith("This result is doubtful, because")
    assert Health.of([BELOW.finding(0.9, "it learned")]).headline == "No problem found (1 check)."


@given(st.floats(allow_nan=False))
def test_findings_survive_json_that_any_reader_understands(value):
    stored = json.dumps(Health.of([BELOW.finding(value, "so")]).to_json(), allow_nan=False)
    (back,) = Health.from_json(json.loads(stored)).findings
    assert back.verdict == BELOW.verdict(value)
    assert back.value == value or not math.isfinite(value)


def test_a_verdict_that_nobody_gives_is_refused():
    stored = Finding("a", "ok", "b", "c", 1.0, "d").to_json() | {"verdict": "splendid"}
    with pytest.raises(ValueError, match="splendid"):
        Finding.from_json(stored)
