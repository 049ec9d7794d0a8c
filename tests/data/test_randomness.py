import numpy as np
import pytest

from holdfast.data.randomness import local_generator, split_at_random
from holdfast.errors import ConfigError, DataError


def test_a_stream_depends_on_seed_and_purpose_alone() -> None:
    np.random.seed(1)  # noqa: NPY002 - to show that the global generator is left alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draws = {(s, p): local_generator(s, p).integers(2**60) for s in (0, 1) for p in ("train", "test")}
    assert len(set(draws.values())) == 4
    assert local_generator(1, "test").integers(2**60) == draws[1, "test"]
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="the seed -1 is negative"):
        local_generator(-1, "train")


def test_parts_are_disjoint_and_cover_everything() -> None:
    parts = split_at_random(100, (20, 30), np.random.default_rng(0))
    assert [len(part) for part in parts] == [20, 30, 50]
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert all((np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("sizes", [(0, 5), (60, 40), (-1, 5)])
def test_an_empty_part_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="100 examples can't be split"):
        split_at_random(100, sizes, np.random.default_rng(0))
