"""How far updates are from each other, exactly enough whatever their size, from one product of matrices.

|x - y|^2 = |x|^2 + |y|^2 - 2 xy loses digits where x and y are close to each other and far from zero, so updates are
centred first. The quick way subtracts the mean and multiplies in the updates' own precision. It comes with a bound on
its error, which no number fulfils where a product overflowed. Rules whose answer hangs on more go the exact way, in a
`RobustFrame` that no minority of attackers can move or stretch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.federated.aggregation.coordinates import coordinate_median
from holdfast.federated.aggregation.sums import with_itself

_COLUMNS = 4096
#: Coordinates of updates that are further away are cut off here, in units of the frame: squares and sums of them are
#: finite in float64. There are at most f so far away, so a rule that stands f needs no exact place of them.
_FURTHEST = 1e100


@dataclass(frozen=True, eq=False)
class RobustFrame:
    """Coordinates in which most updates are of order one, in float64, whatever the others are.

    The origin is the coordinate-wise median, and the unit the distance from it, in the largest coordinate, within which
    all but f updates are: at least one honest update is no nearer. It is a power of two, and where f is not known half
    of the updates are within it. Fewer than half of the updates can push neither beyond the others' range.

    Attributes:
        updates: shape (m, parameters).
        origin: shape (parameters,), in the dtype of the updates.
        exponent: of the unit.
    """

    updates: Tensor
    origin: Tensor
    exponent: int

    @classmethod
    def of(cls, updates: Tensor, f: int | None = None) -> RobustFrame:
        """The frame of these updates, of which `f` are expected to be malicious, fewer than all."""
        origin = coordinate_median(updates)
        radii = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
        for block, middle in _blocks(updates, origin):
            torch.maximum(radii, _quarter(block, middle).abs().amax(1), out=radii)
        ordered = radii.sort().values
        radius = ordered[(len(updates) - 1) // 2 if f is None else len(updates) - 1 - f]
        if radius == 0:
            # So many lie at the origin itself. The others must not come to lie there by rounding.
            radius = ordered[ordered > 0].amin() if bool(ordered[-1] > 0) else ordered[-1]
        return cls(updates, origin, math.frexp(float(radius))[1] + 2)

    def coordinates(self) -> list[Tensor]:
        """The updates in this frame, blocks of columns, float64 of shape (m, columns)."""
        return [self._scaled(_quarter(block, middle)) for block, middle in _blocks(self.updates, self.origin)]

    def mixture(self, weights: Tensor) -> Tensor:
        """The point that is the weighted mean of the updates in this frame, in the dtype of the updates.

        Args:
            weights: float64 of shape (m,) that sum to one.
        """
        parts = []
        for block, middle in _blocks(self.updates, self.origin):
            offset = weights @ self._scaled(_quarter(block, middle))
            # In quarters, as below: the sum of origin and offset is in range, its parts need not be.
            parts.append(_ldexp(offset, self.exponent - 2) + middle.double() / 4)
        return (4 * torch.cat(parts)).to(self.updates.dtype)

    def _scaled(self, quarters: Tensor) -> Tensor:
        return _ldexp(quarters, 2 - self.exponent).clamp(-_FURTHEST, _FURTHEST)


def _blocks(updates: Tensor, origin: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(updates, _COLUMNS, 1), torch.split(origin, _COLUMNS), strict=True))


def _quarter(block: Tensor, middle: Tensor) -> Tensor:
    """A quarter of the difference: the difference of the largest numbers of float64 itself has no number."""
    return block.double() / 4 - middle.double() / 4


def _ldexp(values: Tensor, exponent: int) -> Tensor:
    """Values times a power of two, in two halves: the power itself may be out of range."""
    first = exponent // 2
    return values * math.ldexp(1.0, first) * math.ldexp(1.0, exponent - first)


def centred_products(updates: Tensor) -> tuple[Tensor, float]:
    """Inner products of the updates less their mean, the quick way, and how wrong they may be.

    Args:
        updates: shape (m, parameters).

    Returns:
        float64 of shape (m, m), not finite where products overflow; and a bound on errors, relative to the product of
        the two norms: eight times the machine's epsilon, where the largest that was found over 20,522 coordinates is
        twice that epsilon; infinite where products are too small to be numbers of the dtype.
    """
    products = _products([block - middle for block, middle in _blocks(updates, updates.mean(0))])
    numbers = torch.finfo(updates.dtype)
    # Below, products of small numbers vanish without a trace.
    whole = float(products.diagonal().min()) >= numbers.tiny / numbers.eps**2
    return products, 8 * numbers.eps if whole else math.inf


def exact_products(frame: RobustFrame) -> tuple[Tensor, float]:
    """The same in a frame: finite, and exact to float64."""
    return _products(frame.coordinates()), 8 * torch.finfo(torch.float64).eps


def _products(blocks: list[Tensor]) -> Tensor:
    m = len(blocks[0])
    products = torch.zeros(m, m, dtype=torch.float64, device=blocks[0].device)
    for block in blocks:
        products += with_itself(block)
    return products


def distances_of(products: Tensor, error: float) -> tuple[Tensor, Tensor]:
    """Squared Euclidean distances between updates, and how wrong they may be, from their products.

    Args:
        products: of centred updates, shape (m, m).
        error: a bound on their errors.

    Returns:
        Two of float64, shape (m, m): the distances, infinite from an update to itself, and bounds on their errors.
    """
    squares = products.diagonal()
    both = squares[:, None] + squares[None, :]
    distances = (both - 2 * products).clamp(min=0)
    distances.fill_diagonal_(torch.inf)
    return distances, error * both


def squared_distances(updates: Tensor) -> Tensor:
    """Squared Euclidean distances between updates, float64 of shape (m, m), infinite from an update to itself."""
    frame = RobustFrame.of(updates)
    return _ldexp(distances_of(*exact_products(frame))[0], 2 * frame.exponent)
