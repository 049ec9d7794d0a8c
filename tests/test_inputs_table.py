"""Every kind of input of docs/results/inputs.md trains, and is refused with a sentence where it is broken."""

import pytest

from benchmarks.inputs import KINDS, PAGE, run

WITHOUT_NETWORK = "data set of the hub, by name"


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_trains_and_a_broken_one_is_a_sentence_before_training(kind):
    intact, *broken = (run(case) for case in KINDS[kind])
    assert intact.trained or (kind == WITHOUT_NETWORK and "can't be loaded from the hub" in intact.line), intact.line
    for outcome in broken:
        assert not outcome.trained and 20 < len(outcome.line) < 600, outcome.line


def test_the_page_has_a_row_for_every_kind():
    page = PAGE.read_text()
    for kind in KINDS:
        assert f"| {kind} | " in page
