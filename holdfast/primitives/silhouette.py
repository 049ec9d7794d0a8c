"""Silhouettes: how much nearer each point is to its own cluster than to the next one (Rousseeuw 1987).

The paper is https://doi.org/10.1016/0377-0427(87)90125-7. For point i let a be the mean distance to the others of its
cluster and b the smallest mean distance to another cluster; its score is (b - a) / max(a, b), and 0 in a cluster of
one. SPARE chooses the number of clusters by the mean score. The textbook way costs n^2 distances. Points on a line, as
the softmax of two classes is, need only sorting and prefix sums, n log n, exactly. Others are compared in blocks,
exactly, in memory linear in n.

Where there are very many, the score is estimated. With root mean square distances in place of mean distances it costs
only n k, for all points, because a cluster's squared distances follow from its mean and its spread. A stratified
sample says how far this is from the real score; the difference varies little, so a thousand points say it as well
as tens of thousands would say the score itself. The result carries its standard error.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.primitives.ranks import rank_in_part
from holdfast.streams import torch_stream

_BLOCK = 2**20  # distances held at once
_KEEP_ALL_BELOW = 200  # smaller clusters enter a sample whole
_KEEP_AT_LEAST = 100  # points of every larger cluster in a sample
_JACKKNIFE_GROUPS = 10
_FEW_DIMENSIONS = 8  # up to here, distances are computed without cancellation; beyond, by matrix products


@dataclass(frozen=True)
class SilhouetteScore:
    """A mean silhouette and how it was found.

    Attributes:
        value: from -1 to 1.
        method: ``sorted`` (exact, points on a line), ``exact`` (all distances), or ``sampled``.
        standard_error: of a sampled value; 0 for the others.
    """

    value: float
    method: Literal["sorted", "exact", "sampled"]
    standard_error: float = 0.0


def silhouette(points: Tensor, clusters: Tensor) -> Tensor:
    """The silhouette of every point, exactly.

    Args:
        points: float of shape (n, d).
        clusters: cluster of each point, int64 of shape (n,), at least two different ones.

    Returns:
        float64 of shape (n,).

    Raises:
        DataError: if the shapes disagree, a point is not finite, or there is one cluster only.

    Example:
        >>> import torch
        >>> silhouette(torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 0, 1])).tolist()
        [0.8888888888888888, 0.875, 0.0]
    """
    codes, sizes = _coded(points, clusters)
    line = line_coordinates(points)
    sums = _distance_sums(points, codes, len(sizes)) if line is None else _sums_on_line(line, codes, len(sizes))
    return _scores(sums, codes, sizes)


def silhouette_score(
    points: Tensor, clusters: Tensor, *, seed: int = 0, limit: int = 5_000, sample: int = 1000
) -> SilhouetteScore:
    """The mean silhouette, exactly where that is cheap and with the help of a sample where it is not.

    Args:
        points: float of shape (n, d).
        clusters: cluster of each point, int64 of shape (n,), at least two different ones.
        seed: names the stream that draws the sample.
        limit: sample where there are more points than this and they don't lie on a line.
        sample: how many points to sample. Clusters of fewer than 200 are taken whole and of others at least 100
            points, even if that makes more; the rest of the sample is in proportion to what is left.

    Returns:
        The score, with the way it was found.
    """
    codes, sizes = _coded(points, clusters)
    line = line_coordinates(points)
    if line is None and len(points) > limit:
        return _sampled_score(points, codes, sizes, sample, torch_stream(seed, "silhouette"))
    sums = _distance_sums(points, codes, len(sizes)) if line is None else _sums_on_line(line, codes, len(sizes))
    value = float(_scores(sums, codes, sizes).mean())
    return SilhouetteScore(value, method="exact" if line is None else "sorted")


def line_coordinates(points: Tensor) -> Tensor | None:
    """Where points lie along a line, if they all lie on one but for the rounding of their type.

    The coordinate is the column that varies most, scaled so that distances are kept. So it doesn't depend on the
    order of the points, to the bit.

    Args:
        points: float of shape (n, d), n at least 1.

    Returns:
        float64 of shape (n,), or None if they don't lie on a line.
    """
    if points.shape[1] == 1:
        return points[:, 0].to(torch.float64)
    tolerance = 4 * torch.finfo(points.dtype).eps * float(points.abs().max())
    # Most point sets are off every line at a glance, so few of them pay for the whole test.
    glance = points[:: max(1, len(points) // 256)]
    if _along_a_line(glance, tolerance) is None:
        return None
    return _along_a_line(points, tolerance)


def _along_a_line(points: Tensor, tolerance: float) -> Tensor | None:
    low, high = points.amin(0), points.amax(0)
    widest = int((high - low).argmax())
    column = points[:, widest].to(torch.float64)
    first, last = points[column.argmin()].to(torch.float64), points[column.argmax()].to(torch.float64)
    extent = last - first
    if extent[widest] == 0:
        return torch.zeros_like(column)
    extent = extent / extent[widest]
    expected = first + (column - column.min())[:, None] * extent
    if float((points - expected).abs().max()) > tolerance:
        return None
    scale = float(extent.norm())
    return column * scale


def _coded(points: Tensor, clusters: Tensor) -> tuple[Tensor, Tensor]:
    """The clusters numbered without gaps, and their sizes."""
    if points.ndim != 2 or clusters.shape != points.shape[:1]:
        raise DataError(
            f"points have shape {tuple(points.shape)} and clusters {tuple(clusters.shape)}; give (n, d) and (n,)"
        )
    if not bool(torch.isfinite(points).all()):
        raise DataError("some points are not finite, so they have no distances; leave them out")
    names, codes = torch.unique(clusters, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"a silhouette compares clusters and there is {len(names)}; give at least 2")
    return codes, torch.bincount(codes)


def _scores(sums: Tensor, codes: Tensor, sizes: Tensor, power: Literal[1, 2] = 1) -> Tensor:
    """Silhouettes (..., n) from the summed distances (..., n, clusters) of every point to every cluster.

    Args:
        sums: of distances or, with power 2, of squared distances, whose root mean square then is the distance.
        codes: cluster of each point, int64 of shape (n,).
        sizes: of the clusters, (..., clusters).
        power: of the distances.
    """
    own = codes[:, None].expand(*sums.shape[:-1], 1)
    own_sizes = sizes[..., codes]
    # A point is no neighbour of its own: its distance to itself is 0 in the sum, and must not be in the count.
    a = sums.gather(-1, own).squeeze(-1) / (own_sizes - 1).clamp(min=1)
    means = torch.where(sizes[..., None, :] > 0, sums / sizes[..., None, :], torch.inf)
    b = means.scatter_(-1, own, torch.inf).amin(-1)
    if power == 2:
        a, b = a.sqrt_(), b.sqrt_()
    return ((b - a) / torch.maximum(a, b)).nan_to_num(0.0).masked_fill(own_sizes == 1, 0.0)


def _sums_on_line(coordinates: Tensor, codes: Tensor, n_clusters: int) -> Tensor:
    """Summed distances to every cluster: those to the left and those to the right, by prefix sums."""
    x = coordinates - coordinates.mean()
    sums = x.new_empty(len(x), n_clusters)
    for cluster in range(n_clusters):
        members = x[codes == cluster].sort().values
        prefix = torch.cat([x.new_zeros(1), members.cumsum(0)])
        left = torch.searchsorted(members, x)
        # With l of m members to the left of x, of sum s, and t the sum of all: (l x - s) + (t - s) - (m - l) x.
        sums[:, cluster] = x * (2 * left - len(members)) - 2 * prefix[left] + prefix[-1]
    return sums.clamp_(min=0)


def _distance_sums(points: Tensor, codes: Tensor, n_codes: int) -> Tensor:
    """Summed distances (n, codes) of every point to those of every code, a block of rows at a time."""
    order = codes.argsort(stable=True)
    present, counts = torch.unique_consecutive(codes[order], return_counts=True)
    starts = (counts.cumsum(0) - counts).numpy()
    centred = points.to(torch.float64)
    centred = centred - centred.mean(0)
    targets = centred[order]
    # By the matrix product, |x|^2 - 2 x y + |y|^2, distances lose half of their digits where points are near each
    # other. That is the price of speed in many dimensions; in few, subtracting costs no more.
    direct = points.shape[1] <= _FEW_DIMENSIONS
    mode = "donot_use_mm_for_euclid_dist" if direct else "use_mm_for_euclid_dist"
    sums = centred.new_zeros(len(points), n_codes)
    for rows in torch.split(torch.arange(len(points)), max(1, _BLOCK // len(points))):
        distances = torch.cdist(centred[rows], targets, compute_mode=mode).numpy()
        sums[rows[:, None], present] = torch.from_numpy(np.add.reduceat(distances, starts, axis=1))
    return sums


@dataclass(frozen=True)
class _Moments:
    """Counts, sums and squared norms of the points of each code: squared distances to all of them follow."""

    counts: Tensor
    totals: Tensor
    squares: Tensor

    @classmethod
    def of(cls, points: Iterable[Tensor], codes: Iterable[Tensor], n_codes: int, d: int) -> _Moments:
        """Of float64 points (n, d) that come in blocks."""
        totals = torch.zeros(n_codes, d + 2, dtype=torch.float64)
        for block, code in zip(points, codes, strict=True):
            totals.index_add_(
                0, code, torch.cat([block, block.square().sum(1, True), block.new_ones(len(block), 1)], 1)
            )
        return cls(totals[:, -1], totals[:, :d], totals[:, d])

    def distance_sums(self, points: Tensor) -> Tensor:
        """Summed squared distances (n, codes) of points to those of every code."""
        norms = points.square().sum(1, keepdim=True)
        return (norms * self.counts - 2 * points @ self.totals.T + self.squares).clamp_(min=0)


def _rms_score(points: Tensor, codes: Tensor, sizes: Tensor) -> float:
    """The mean silhouette if root mean square distances took the place of mean distances."""
    d, centre = points.shape[1], points.mean(0, dtype=torch.float64)
    height = max(1, _BLOCK // max(d, len(sizes)))

    def blocks() -> Iterator[Tensor]:
        return (block - centre for block in torch.split(points, height))

    moments = _Moments.of(blocks(), torch.split(codes, height), len(sizes), d)
    total = 0.0
    for block, code in zip(blocks(), torch.split(codes, height), strict=True):
        total += float(_scores(moments.distance_sums(block), code, sizes, power=2).sum())
    return total / len(points)


def _sampled_score(
    points: Tensor, codes: Tensor, sizes: Tensor, sample: int, generator: torch.Generator
) -> SilhouetteScore:
    """The score by root mean square distances, plus what a sample says about its difference from the real one.

    Every sampled point is judged, and is also part of what others are judged by, so the standard error is found by
    leaving out a tenth of the sample at a time (jackknife), in both roles.
    """
    everywhere = _rms_score(points, codes, sizes)
    chosen, rank = _stratified(codes, sizes, sample, generator)
    points, codes, group = points[chosen].to(torch.float64), codes[chosen], rank % _JACKKNIFE_GROUPS
    points = points - points.mean(0)
    share, k = sizes.to(torch.float64) / sizes.sum(), len(sizes)
    cells, n_cells = group * k + codes, _JACKKNIFE_GROUPS * k
    moments = _Moments.of([points], [cells], n_cells, points.shape[1])
    distances = _all_and_without_each(_distance_sums(points, cells, n_cells).view(-1, _JACKKNIFE_GROUPS, k))
    squares = _all_and_without_each(moments.distance_sums(points).view(-1, _JACKKNIFE_GROUPS, k)).clamp_(min=0)
    size = _all_and_without_each(torch.bincount(cells, minlength=n_cells).view(1, _JACKKNIFE_GROUPS, k)).squeeze(1)
    gaps = _scores(distances, codes, size) - _scores(squares, codes, size, power=2)
    included = torch.arange(-1, _JACKKNIFE_GROUPS)[:, None] != group
    judged = (share / size.clamp(min=1))[:, codes] * included
    whole, *partial = (gaps * judged).sum(1).tolist()
    spread = (_JACKKNIFE_GROUPS - 1) * statistics.pvariance(partial)
    return SilhouetteScore(min(1.0, max(-1.0, everywhere + whole)), "sampled", spread**0.5)


def _all_and_without_each(parts: Tensor) -> Tensor:
    """From parts (n, groups, clusters): the sum over groups, then the sums without each; (1 + groups, n, clusters)."""
    whole = parts.sum(1)
    return torch.cat([whole[None], whole - parts.transpose(0, 1)])


def _stratified(codes: Tensor, sizes: Tensor, sample: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions of a sample that has enough of every code, and the place of each among those of its code."""
    shuffled = torch.randperm(len(codes), generator=generator)
    rank = torch.empty_like(codes)
    rank[shuffled] = rank_in_part(codes[shuffled])
    base = torch.where(sizes < _KEEP_ALL_BELOW, sizes, _KEEP_AT_LEAST)
    left = sizes - base
    quota = base + (max(0, sample - int(base.sum())) * left) // left.sum().clamp(min=1)
    chosen = (rank < quota[codes]).nonzero().flatten()
    return chosen, rank[chosen]
