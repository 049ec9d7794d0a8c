import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.primitives.ranks import rank_in_part


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_a_rank_counts_the_earlier_elements_of_the_same_part(parts: list[int]) -> None:
    expected = [parts[:place].count(part) for place, part in enumerate(parts)]
    assert rank_in_part(torch.tensor(parts)).tolist() == expected
