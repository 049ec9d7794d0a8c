"""`holdfast evaluate` against scikit-learn and fairlearn; `python -m tests.soak.evaluations` runs 500 tables."""

import pytest

from tests.soak.evaluations import KINDS, run

pytest.importorskip("xgboost")


@pytest.mark.soak
def test_every_number_of_an_evaluation_is_scikit_learns_or_fairlearns(seed, tmp_path):
    """Three tables in a row, of three kinds, in formats and with weights that go by their numbers."""
    ran = dict(run(3 * seed + place, tmp_path) for place in range(3))
    assert len(ran) == 3 and len(KINDS) > 3
    assert all(compared["values"] > 50 for compared in ran.values())
