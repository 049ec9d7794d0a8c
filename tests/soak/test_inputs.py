"""Damaged inputs and configurations end in success or in one sentence; `python -m tests.soak.damage` runs thousands."""

import pytest

from tests.soak.damage import KINDS, judged, run, warm_up


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up()


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_damaged_is_used_or_refused_with_a_sentence(kind, seed):
    for number in range(4):
        outcome = run(kind, 4 * seed + number)
        assert outcome.result in ("done", "refused"), f"{kind} {4 * seed + number}: {outcome.about}"


def test_a_message_that_is_no_sentence_counts_as_a_failure():
    assert judged("csv", 0, "x is wrong; give y").result == "refused"
    for message in ("", "a\nb", "x" * 2_000, "\x1b[31mred", "Traceback (most recent call last)"):
        assert judged("csv", 0, message).result == "failed"
