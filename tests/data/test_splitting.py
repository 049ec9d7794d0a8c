import numpy as np
import pytest

from holdfast.data.splitting import split_at_random
from holdfast.errors import DataError


def test_parts_are_disjoint_and_cover_everything() -> None:
    parts = split_at_random(100, (20, 30), np.random.default_rng(0))
    assert [len(part) for part in parts] == [20, 30, 50]
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert all((np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("sizes", [(0, 5), (60, 40), (-1, 5)])
def test_an_empty_part_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="100 examples can't be split"):
        split_at_random(100, sizes, np.random.default_rng(0))
