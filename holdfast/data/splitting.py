"""A set cut into random parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError


def split_at_random(n: int, sizes: tuple[int, ...], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Disjoint random parts of ``0..n-1``, each in ascending order.

    Args:
        n: how many there are.
        sizes: the sizes of all parts but the last, which gets the rest.
        rng: where the permutation is drawn from.

    Returns:
        One int64 vector per part.

    Raises:
        DataError: if a part would be empty.
    """
    if min(sizes) <= 0 or sum(sizes) >= n:
        raise DataError(f"{n} examples can't be split into parts of {', '.join(map(str, sizes))} and a rest")
    order = rng.permutation(n).astype(np.int64)
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes))]
