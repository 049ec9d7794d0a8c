"""Attributes with many values are crossed by sorting; what comes out is what trying every pair gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.own.values import Coded
from holdfast.training.evaluation.by_group.grouping import Attribute, families


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 80))
def test_many_values_crossed_are_the_pairs_that_occur(seed, n):
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(17, 40)), int(rng.integers(17, 40))]
    codes = [rng.integers(-1, size, n) for size in sizes]  # -1 is in no group
    codes[0][0] = codes[1][0] = 0
    groups = {
        name: Attribute.of_codes(name, Coded(column, tuple(f"{name}{level}" for level in range(size))))
        for name, column, size in zip("ab", codes, sizes, strict=True)
    }
    together = list(families(groups, n, 2))[-1]
    found = {levels: rows.tolist() for levels, rows in zip(together.levels, together.rows, strict=True)}
    wanted = {}
    for row, (a, b) in enumerate(zip(*codes, strict=True)):
        if a >= 0 and b >= 0:
            wanted.setdefault((f"a{a}", f"b{b}"), []).append(row)
    assert found == wanted
