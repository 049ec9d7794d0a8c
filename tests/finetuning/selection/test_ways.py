from __future__ import annotations

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning.selection.names import METHODS
from holdfast.finetuning.selection.ways import Seen, choose_by, weights_of

DRAW = np.random.default_rng(0)
N = 40
SEEN = Seen(
    np.repeat([0, 1, 2], [28, 8, 4]),
    np.arange(N) != 5,
    lengths=np.arange(N),
    before=DRAW.random(N),
    after=DRAW.random(N),
    confidence=DRAW.random(N),
    states=DRAW.standard_normal((N, 3)).astype(np.float32),
)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "s2l"])
def test_every_way_fills_its_budget_with_what_is_usable(method) -> None:
    chosen = choose_by(method, SEEN, 12, seed=3)
    assert len(np.unique(chosen)) == 12
    assert 5 not in chosen
    assert (np.diff(chosen) > 0).all()
    assert np.array_equal(chosen, choose_by(method, SEEN, 12, seed=3))


def test_the_longest_are_the_longest() -> None:
    assert choose_by("longest", SEEN, 3).tolist() == [37, 38, 39]


def test_equal_shares_are_equal() -> None:
    assert np.bincount(SEEN.sources[choose_by("source-balanced", SEEN, 12)]).tolist() == [4, 4, 4]


def test_what_a_way_needs_must_be_there() -> None:
    bare = Seen(SEEN.sources, SEEN.usable)
    with pytest.raises(ConfigError, match="learnability needs before and after"):
        choose_by("learnability", bare, 3)
    with pytest.raises(ConfigError, match="'s2l' does not choose by scores"):
        choose_by("s2l", bare, 3)


def test_weighted_picks_stand_for_all_examples() -> None:
    """A mean with the weights is that of the groups by their sizes, whatever was picked of each."""
    groups = np.repeat([0, 1, 2], [28, 8, 4])
    value = np.array([1.0, 5.0, 9.0])[groups]
    chosen = choose_by("source-balanced", SEEN, 12)
    weights = weights_of(chosen, groups)
    assert weights.mean() == pytest.approx(1)
    assert np.average(value[chosen], weights=weights) == pytest.approx(value.mean())
