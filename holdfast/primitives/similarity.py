"""Similarities of points to candidates on a grid: all of them in memory, or computed in blocks when they are needed.

Every similarity is rounded to a multiple of 2^-24 of the largest (a power of two above it), its *unit*. Sums in float64
are then exact in any order, so that fast and naive ways of choosing agree to the last tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.errors import DataError

#: ``cosine`` is 1 + the cosine, 0 with a zero vector; ``euclidean`` the largest distance minus the distance;
#: ``exponential`` is exp(-distance / dimensions), the kernel that submodlib calls "euclidean".
Metric = Literal["cosine", "euclidean", "exponential"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Where = Ints | slice
#: Some quantity of points (rows) and candidates (columns), by their positions, as a fresh array.
Block = Callable[[Where, Where], Floats]

BITS = 24  # of a similarity: as many as float32 has
_FAR = 2.0**-8  # of the largest similarity: where they differ by less, what they have in common is taken off first

_BLOCK = 2**16  # similarities worked on at once: few enough for the processor's cache
_TILE = 2**19  # computed at once: enough rows for a fast product
_FEWEST_ROWS = 16  # worked on at once however many candidates there are, because thin products are slow


class Geometry(Protocol):
    """Points that have distances."""

    def __len__(self) -> int:
        """How many points there are."""

    @property
    def dimensions(self) -> int:
        """Of the space they lie in."""

    def part(self, positions: Tensor) -> Geometry:
        """Some of the points."""

    def squared_distances(self, candidates: Ints) -> Block:
        """Squared distances of points to those candidates."""

    def squared_in_parts(self, places: Tensor) -> Tensor:
        """Squared distances within many parts: positions of shape (parts, s) to float64 of shape (parts, s, s)."""

    def check(self) -> None:
        """Raise a DataError where distances would make no sense."""


@dataclass(frozen=True, eq=False)
class Points:
    """Points by their coordinates.

    Attributes:
        x: float of shape (n, d).
    """

    x: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dimensions(self) -> int:
        """Coordinates of a point."""
        return self.x.shape[1]

    def part(self, positions: Tensor) -> Points:
        """The points at `positions`."""
        return Points(self.x[positions])

    def squared_distances(self, candidates: Ints) -> Block:
        """|a|^2 + |b|^2 - 2ab by one product, around the mean so that a far origin blurs nothing."""
        x = self.x.detach().to(torch.float64).numpy()
        x = x - x.mean(0)
        square, one = np.square(x).sum(1, keepdims=True), np.ones((len(x), 1))
        left, right = np.hstack([-2 * x, square, one]), np.hstack([x, one, square])[candidates]
        rounding = _rounding(left.shape[1], square[:, 0])

        def block(rows: Where, columns: Where) -> Floats:
            found: Floats = left[rows] @ right[columns].T
            found[found <= rounding] = 0
            return found

        return block

    def squared_in_parts(self, places: Tensor) -> Tensor:
        """As `squared_distances`, around the mean of each part."""
        x = self.x.detach()[places].to(torch.float64)
        x = x - x.mean(1, keepdim=True)
        square = x.square().sum(2)
        return _squares(square, x @ x.mT, x.shape[2] + 2)

    def check(self) -> None:
        """One row per point, all finite."""
        if self.x.ndim != 2 or len(self.x) == 0:
            raise DataError(f"points have shape {tuple(self.x.shape)}; give (n, d) with n at least 1")
        _check_finite(self.x)


@dataclass(frozen=True, eq=False)
class LastLayerGradients:
    """Gradients of examples with respect to a linear last layer and its bias, by their two factors.

    The gradient of example i is the outer product of its residual e_i (softmax minus one-hot) and of [h_i; 1], the
    input of the layer. Inner products are <e_i, e_j> (<h_i, h_j> + 1), so the C (d + 1) numbers of a gradient are never
    written down.

    Attributes:
        residuals: float of shape (n, C).
        features: float of shape (n, d).
    """

    residuals: Tensor
    features: Tensor

    def __len__(self) -> int:
        return len(self.residuals)

    @property
    def dimensions(self) -> int:
        """Numbers in a gradient."""
        return self.residuals.shape[1] * (self.features.shape[1] + 1)

    def part(self, positions: Tensor) -> LastLayerGradients:
        """The gradients of the examples at `positions`."""
        return LastLayerGradients(self.residuals[positions], self.features[positions])

    def squared_distances(self, candidates: Ints) -> Block:
        """G_ii + G_jj - 2 G_ij, where G is the product of the residuals' Gram matrix and the features'."""
        e = self.residuals.detach().to(torch.float64).numpy()
        h = self.features.detach().to(torch.float64).numpy()
        square = np.square(e).sum(1) * (np.square(h).sum(1) + 1)
        other_e, other_h, other_square = e[candidates], h[candidates], square[candidates]
        rounding = _rounding(e.shape[1] + h.shape[1], square)

        def block(rows: Where, columns: Where) -> Floats:
            found: Floats = h[rows] @ other_h[columns].T
            found += 1
            found *= e[rows] @ other_e[columns].T
            found *= -2
            found += square[rows, None]
            found += other_square[columns]
            found[found <= rounding] = 0
            return found

        return block

    def squared_in_parts(self, places: Tensor) -> Tensor:
        """As `squared_distances`."""
        e, h = (factor.detach()[places].to(torch.float64) for factor in (self.residuals, self.features))
        square = e.square().sum(2) * (h.square().sum(2) + 1)
        return _squares(square, (e @ e.mT) * (h @ h.mT + 1), e.shape[2] + h.shape[2])

    def check(self) -> None:
        """As many residuals as features, all finite."""
        if self.residuals.ndim != 2 or self.features.ndim != 2 or not 0 < len(self.residuals) == len(self.features):
            raise DataError(
                f"residuals of shape {tuple(self.residuals.shape)} and features of shape {tuple(self.features.shape)} "
                "aren't last-layer gradients; give (n, C) and (n, d) with n at least 1"
            )
        _check_finite(self.residuals)
        _check_finite(self.features)


@dataclass(frozen=True, eq=False)
class Matrix:
    """All similarities in memory.

    Attributes:
        values: contiguous, shape (points, candidates).
        unit: the similarity that all are rounded to multiples of.
        scale: units in a value of one.
        symmetric: whether rows equal columns.
        offset: what was taken from all similarities, so that a large constant in them blurs nothing.
    """

    values: Singles
    unit: float
    scale: float
    symmetric: bool
    offset: float = 0.0

    @classmethod
    def given(cls, similarity: Tensor, *, symmetric: bool) -> Matrix:
        """Similarities that somebody else has computed; read as they lie there if they are contiguous float32."""
        if similarity.ndim != 2 or similarity.numel() == 0:
            raise DataError(f"similarity has shape {tuple(similarity.shape)}; give (n, candidates), both at least 1")
        least, largest = (float(end) for end in torch.aminmax(similarity))
        if not (np.isfinite(least) and np.isfinite(largest)):
            raise DataError("some similarities are not finite; leave their points out")
        if least < 0:
            raise DataError(f"the least similarity is {least:g}; add a constant, so that none is negative")
        unit = unit_of(largest)
        if similarity.dtype == torch.float32 and 1 / unit <= torch.finfo(torch.float32).max:
            return cls(np.ascontiguousarray(similarity.detach().numpy()), unit, 1 / unit, symmetric)
        offset = least if largest - least < _FAR * largest else 0.0
        given, unit = similarity.detach().to(torch.float64).numpy() - offset, unit_of(largest - offset)
        return cls(np.rint(given / unit).astype(np.float32), unit, 1.0, symmetric, offset)

    @property
    def shape(self) -> tuple[int, int]:
        """Points and candidates."""
        return self.values.shape[0], self.values.shape[1]

    def columns(self, candidates: Ints) -> Singles:
        """In units, of all points to some candidates: shape (points, candidates)."""
        chosen = self.values[candidates].T if self.symmetric else self.values[:, candidates]
        units: Singles = np.rint(chosen * np.float32(self.scale))
        return units


@dataclass(frozen=True, eq=False)
class Blocks:
    """Similarities as a function of the positions of points and candidates.

    Attributes:
        shape: points and candidates.
        unit: the similarity that all are rounded to multiples of.
        block: the similarities.
        symmetric: whether candidates are the points, in their order.
    """

    shape: tuple[int, int]
    unit: float
    block: Block
    symmetric: bool

    def rows(self, points: Where) -> Singles:
        """In units, of some points to all candidates: shape (points, candidates)."""
        return self._rounded(self.block(points, slice(None)))

    def columns(self, candidates: Ints) -> Singles:
        """In units, of all points to some candidates: shape (points, candidates)."""
        return self._rounded(self.block(slice(None), candidates))

    def matrix(self) -> Matrix:
        """All of them in memory, in units; where they are symmetric, half of them are computed and mirrored."""
        values = np.empty(self.shape, np.float32)
        for rows, columns in _tiles(self.shape, self.symmetric):
            block = self._rounded(self.block(rows, columns))
            values[rows, columns] = block
            if self.symmetric:
                values[columns, rows] = block.T
                corner = block[:, : len(block)]
                values[rows, rows] = np.triu(corner) + np.triu(corner, 1).T
        return Matrix(values, self.unit, 1.0, self.symmetric)

    def _rounded(self, block: Floats) -> Singles:
        block /= self.unit
        return np.rint(block, out=block).astype(np.float32)


def cosine_similarities(points: Points, candidates: Ints) -> Blocks:
    """1 + the cosine; 0 with a zero vector."""
    x = points.x.detach().to(torch.float64).numpy()
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    directions = np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)
    others = directions[candidates]

    def block(rows: Where, columns: Where) -> Floats:
        cosine: Floats = directions[rows] @ others[columns].T
        return np.maximum(1 + cosine, 0, out=cosine)

    return Blocks((len(x), len(candidates)), unit_of(2.0), block, _are_all(candidates, len(x)))


def distance_similarities(points: Geometry, candidates: Ints, metric: Metric) -> Blocks:
    """The largest distance minus the distance, or exp(-distance / dimensions)."""
    squared = points.squared_distances(candidates)
    shape = (len(points), len(candidates))
    symmetric = _are_all(candidates, len(points))
    if metric == "exponential":

        def decayed(rows: Where, columns: Where) -> Floats:
            block = squared(rows, columns)
            np.sqrt(block, out=block)
            block /= -points.dimensions
            return np.exp(block, out=block)

        return Blocks(shape, unit_of(1.0), decayed, symmetric)
    largest = float(np.sqrt(max(squared(rows, columns).max() for rows, columns in _tiles(shape, symmetric))))

    def remaining(rows: Where, columns: Where) -> Floats:
        block = squared(rows, columns)
        np.sqrt(block, out=block)
        return np.subtract(largest, block, out=block)

    return Blocks(shape, unit_of(largest), remaining, symmetric)


def similarities_in_parts(points: Geometry, places: Tensor, inside: Tensor, metric: Metric) -> Singles:
    """Similarities within many parts, each in its own unit.

    Args:
        points: all points.
        places: positions of each part's points, int64 of shape (parts, s), padded with any.
        inside: which of those are no padding, bool of the same shape.
        metric: ``euclidean`` or ``exponential``.

    Returns:
        In units, shape (parts, s, s), symmetric; 0 with padding.
    """
    distance = points.squared_in_parts(places).sqrt_()
    real = inside[:, :, None] & inside[:, None, :]
    if metric == "exponential":
        similarity = (distance / -points.dimensions).exp_()
        largest = torch.ones(len(places), dtype=torch.float64)
    else:
        largest = torch.where(real, distance, 0).amax((1, 2))
        similarity = largest[:, None, None] - distance
    units = torch.exp2(torch.frexp(largest)[1].to(torch.float64) - BITS)
    found: Singles = torch.where(real, similarity / units[:, None, None], 0).round_().to(torch.float32).numpy()
    return found


def unit_of(largest: float) -> float:
    """The distance of neighbours on the grid: a power of two, so that whole numbers are on it."""
    return float(2.0 ** (np.frexp(largest)[1] - BITS))


def batches_of_rows(rows: Ints, width: int) -> Iterator[Ints]:
    """Rows of that width, as many at a time as make a block."""
    height = max(_FEWEST_ROWS, _BLOCK // width)
    return (rows[start : start + height] for start in range(0, len(rows), height))


def _tiles(shape: tuple[int, int], symmetric: bool) -> Iterator[tuple[slice, slice]]:
    """Rows and columns that together cover everything, or the upper triangle of what is symmetric."""
    height = max(_FEWEST_ROWS, _TILE // shape[1])
    for start in range(0, shape[0], height):
        yield slice(start, min(start + height, shape[0])), slice(start if symmetric else 0, None)


def _squares(square: Tensor, inner: Tensor, terms: int) -> Tensor:
    """|a|^2 + |b|^2 - 2ab within parts, the same for (a, b) and (b, a)."""
    found = square[:, :, None] + square[:, None, :] - (inner + inner.mT)
    rounding = torch.from_numpy(_rounding(terms, square.numpy()))
    return torch.where(found <= rounding[:, None, None], 0, found)


def _rounding(terms: int, square: Floats) -> Floats:
    """A squared distance up to this is 0 but for the rounding of the sum that gave it; a number per part."""
    found: Floats = 4 * terms * np.finfo(float).eps * square.max(-1)
    return found


def _are_all(candidates: Ints, n: int) -> bool:
    return len(candidates) == n and bool((candidates == np.arange(n)).all())


def _check_finite(values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise DataError("some points are not finite, so they have no similarities; leave them out")
