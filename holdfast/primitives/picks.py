"""Greedy facility location one choice at a time, for what the compiled loop of `holdfast.primitives.greedy` can't hold.

Each function yields its choices lazily, in units of the similarities: with rows that are computed when they are needed,
from random samples of the candidates, and naively, as the reference for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from holdfast.primitives.similarity import Blocks, Floats, Ints, Matrix, Singles, batches_of_rows


class Pick(NamedTuple):
    """An exemplar that was just chosen.

    Attributes:
        exemplar: which candidate it is.
        gain: what it adds to f, in units.
        claimed: the points that are more similar to it than to all before.
    """

    exemplar: int
    gain: float
    claimed: Ints


def recomputed_picks(
    blocks: Blocks, weights: Floats, k: int, lower: Callable[..., None], most: np.float32
) -> Iterator[Pick]:
    """What `holdfast.primitives.greedy.greedy` does, with rows that are computed when they are needed.

    Args:
        blocks: the similarities, shape (n, candidates).
        weights: of the points, shape (n,).
        k: how many to choose.
        lower: the compiled function of that name.
        most: no similarity has more units.
    """
    n, m = blocks.shape
    gains, best = np.zeros(m), np.zeros(n, np.float32)

    def serve(points: Ints, served: Singles) -> None:
        for part in batches_of_rows(points, m):
            rows = blocks.rows(part)
            lower(rows, np.arange(len(part)), best[part], served[part], weights[part], np.float32(1), gains)

    serve(np.arange(n), np.full(n, most))
    gains = -gains
    for number in range(k):
        exemplar = int(gains.argmax())
        column = blocks.columns(np.array([exemplar]))[:, 0]
        nearer = np.flatnonzero(column > best)
        yield Pick(exemplar, max(0.0, float(gains[exemplar])), nearer)
        if number + 1 < k:
            serve(nearer, column)
            gains[exemplar] = -np.inf
            best[nearer] = column[nearer]


def sampled_picks(
    similarities: Matrix | Blocks, weights: Floats, k: int, sample: int, stream: torch.Generator
) -> Iterator[Pick]:
    """Each time the best of `sample` random candidates of the rest (Mirzasoleiman et al. 2015)."""
    n, m = similarities.shape
    best, rest = np.zeros(n, np.float32), torch.randperm(m, generator=stream).numpy()
    for left in range(m, m - k, -1):
        drawn = torch.randperm(left, generator=stream)[:sample].numpy() if left > sample else np.arange(left)
        columns = similarities.columns(rest[drawn])
        gains = weights @ np.maximum(columns - best[:, None], 0)
        tied = np.flatnonzero(gains == gains.max())
        winner = int(tied[np.argmin(rest[drawn[tied]])])
        yield Pick(int(rest[drawn[winner]]), float(gains[winner]), np.flatnonzero(columns[:, winner] > best))
        best = np.maximum(best, columns[:, winner])
        rest[drawn[winner]] = rest[left - 1]


def naive_picks(similarities: Matrix | Blocks, weights: Floats, k: int) -> Iterator[Pick]:
    """Every gain from its definition, at every choice."""
    s = similarities.columns(np.arange(similarities.shape[1])).astype(np.float64)
    best, chosen = np.zeros(len(s)), list[int]()
    for _ in range(k):
        gains = weights @ np.maximum(s - best[:, None], 0)
        gains[chosen] = -np.inf
        exemplar = int(gains.argmax())
        yield Pick(exemplar, float(gains[exemplar]), np.flatnonzero(s[:, exemplar] > best))
        chosen.append(exemplar)
        best = np.maximum(best, s[:, exemplar])
