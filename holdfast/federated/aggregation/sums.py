"""Sums, norms and inner products of updates, right whatever the updates are stored in and however large they are.

The updates of a round are a matrix (clients, parameters) that can be large, so it is never converted as a whole: a
block of columns at a time is. Norms of float32 are taken in float32 first. That is four times as fast, and right to
1e-6 while squares are in range; the others are measured in float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_COLUMNS = 2048
#: Between these, squares of norms are exact in float64.
_SMALL, _LARGE = 1e-140, 1e140


def mean(updates: Tensor) -> Tensor:
    """The unweighted mean of updates (m, parameters).

    Torch adds up pairwise, in float32 at least, which loses a digit at most. Where the sum has no number and the mean
    has one, it is added up in float64.
    """
    added: Tensor = updates.mean(0)
    if math.isfinite(float(added.sum())):  # of all, in one look
        return added
    return weighted_sum(updates, torch.full((len(updates),), 1 / len(updates), dtype=torch.float64))


def weighted_sum(updates: Tensor, weights: Tensor) -> Tensor:
    """The sum of the updates, each times its weight, added up in float64.

    Rules that weigh or choose go through here or through `mean`, so two that choose the same agree to the last bit.

    Args:
        updates: shape (m, parameters).
        weights: shape (m,).

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    weights = weights.to(updates.device, torch.float64)
    total = torch.empty(updates.shape[1], dtype=updates.dtype, device=updates.device)
    for source, target in zip(torch.split(updates, _COLUMNS, 1), torch.split(total, _COLUMNS), strict=True):
        target.copy_(weights @ source.double())
    return total


def mixtures(updates: Tensor, weights: Tensor) -> Tensor:
    """Several weighted sums of the updates at once.

    Args:
        updates: shape (m, parameters).
        weights: shape (mixtures, m), of sum one and not negative.

    Returns:
        Shape (mixtures, parameters), in the dtype of the updates; never beyond its largest number.
    """
    weights = weights.to(updates.device, torch.float64)
    largest = torch.finfo(updates.dtype).max
    mixed = torch.empty(len(weights), updates.shape[1], dtype=updates.dtype, device=updates.device)
    for source, target in zip(torch.split(updates, _COLUMNS, 1), torch.split(mixed, _COLUMNS, 1), strict=True):
        # Rounding may carry a mean of the largest numbers beyond them.
        target.copy_((weights @ source.double()).clamp_(-largest, largest))
    return mixed


def combined(updates: Tensor, weights: Tensor) -> Tensor:
    """The sum of the updates, each times its weight, as float64 of shape (parameters,).

    In the updates' own precision where their weights are numbers of it.

    Args:
        updates: shape (m, parameters).
        weights: float64 of shape (m,), not negative and of sum one at most.
    """
    if _is_wide(updates) and float(weights.min()) >= _in_range(updates.dtype)[0]:
        found: Tensor = weights.to(updates.dtype) @ updates
        if bool(found.isfinite().all()):
            return found.double()
    return torch.cat([weights @ block.double() for block in torch.split(updates, _COLUMNS, 1)])


def mean_of(updates: Tensor, chosen: Tensor) -> Tensor:
    """The mean of the chosen updates.

    Args:
        updates: shape (m, parameters).
        chosen: positions of at least one update.

    Returns:
        Shape (parameters,), in the dtype of the updates.
    """
    if len(chosen) == len(updates):
        return mean(updates)
    weights = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    weights[chosen] = 1 / len(chosen)
    return weighted_sum(updates, weights)


def update_norms(updates: Tensor) -> Tensor:
    """The Euclidean norm of each update over all layers together, float64 of shape (m,).

    Right for all finite updates; infinite only where the norm itself has no number in float64.
    """
    low, high = _in_range(updates.dtype)
    norms: Tensor = torch.linalg.vector_norm(updates if _is_wide(updates) else updates.float(), dim=1).double()
    # Squares overflow or vanish outside: such rows are measured by their largest entry.
    doubtful = (~((norms >= low) & (norms <= high))).nonzero().flatten()
    if len(doubtful):
        largest, shapes = _normalised(updates[doubtful])
        norms[doubtful] = largest * torch.linalg.vector_norm(shapes, dim=1)
    return norms


def _is_wide(updates: Tensor) -> bool:
    """Whether norms can be taken in the updates' own precision."""
    return updates.dtype in (torch.float32, torch.float64)


def _in_range(dtype: torch.dtype) -> tuple[float, float]:
    """Between these, squares of norms are numbers with all their digits, in the precision that norms are taken in."""
    return (_SMALL, _LARGE) if dtype == torch.float64 else (1e-12, 1e15)


def distances_from(updates: Tensor, centre: Tensor) -> tuple[Tensor, int]:
    """Euclidean distances of the updates from a point, for all finite numbers.

    Args:
        updates: shape (m, parameters).
        centre: shape (parameters,).

    Returns:
        float64 of shape (m,), and the power of two that is their unit: that of the median where they are out of range.
        A distance is infinite, or zero, only where it is so many times larger, or smaller, than the median.
    """
    squares = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    blocks = list(zip(torch.split(updates, _COLUMNS, 1), torch.split(centre, _COLUMNS), strict=True))
    for block, middle in blocks:
        apart = block - middle if _is_wide(updates) else block.float() - middle.float()
        squares += torch.linalg.vector_norm(apart, dim=1).double().square()
    distances = squares.sqrt()
    low, high = _in_range(updates.dtype)
    if bool(((distances >= low) & (distances <= high)).all()):
        return distances, 0
    # In quarters: the difference of the largest numbers of float64 itself has no number.
    quarters = [block.double() / 4 - middle.double() / 4 for block, middle in blocks]
    largest, shapes = _normalised(torch.cat(quarters, dim=1))
    # Where half of the updates are at the centre, the others must not come to lie there by rounding.
    middle_one = float(largest.median()) or float(largest.where(largest > 0, torch.inf).min())
    exponent = math.frexp(middle_one)[1] if math.isfinite(middle_one) else 0
    unit = torch.ldexp(largest, torch.tensor(-(exponent // 2)))
    unit = torch.ldexp(unit, torch.tensor(exponent // 2 - exponent))
    return unit * torch.linalg.vector_norm(shapes, dim=1), exponent + 2


def ordinary(lengths: Tensor) -> bool:
    """Whether products of vectors of these lengths are exact in float64."""
    return bool(((lengths >= _SMALL) & (lengths <= _LARGE)).all())


def directions(updates: Tensor) -> Tensor:
    """The updates with length one, float64 of shape (m, parameters); zero vectors have no direction and stay zero."""
    _, shapes = _normalised(updates)
    lengths: Tensor = torch.linalg.vector_norm(shapes, dim=1, keepdim=True)
    return shapes / lengths.clamp(min=1)


def _normalised(updates: Tensor) -> tuple[Tensor, Tensor]:
    """The largest entry of each update, shape (m,), and the updates divided by it; both float64."""
    values = updates.double()
    largest = values.abs().amax(1)
    return largest, values / largest.where(largest > 0, 1.0)[:, None]


def products(updates: Tensor) -> Tensor:
    """Inner products of the updates, float64 of shape (m, m)."""
    gram = torch.zeros(len(updates), len(updates), dtype=torch.float64, device=updates.device)
    for block in torch.split(updates, _COLUMNS, 1):
        gram += with_itself(block.double())
    return gram


def with_itself(block: Tensor) -> Tensor:
    """The product of a matrix with its own transpose; NumPy knows that half of it is enough, torch does not."""
    if block.device.type != "cpu" or block.dtype not in (torch.float32, torch.float64):
        return block @ block.T
    values = block.detach().numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # an attacker's numbers; who calls looks for what is not finite
        return torch.from_numpy(values @ values.T)
