"""Damaged run folders and checkpoints: every command ends well or in a sentence, and no changed weight is used."""

import pytest

from tests.soak.damaged_runs import make_originals, try_case

CASES = 12  # of a round


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return make_originals(tmp_path_factory.mktemp("originals"))


@pytest.mark.soak
def test_a_damaged_run_is_refused_in_a_sentence_or_does_not_matter(originals, seed, tmp_path):
    for number in range(CASES):
        folder = tmp_path / f"case-{seed}-{number}"
        folder.mkdir()
        case = try_case(originals, seed * CASES + number, folder)
        assert case.outcome in {"done", "refused", "named"}, case
