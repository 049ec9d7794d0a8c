"""Plain k-means for many points and many clusters: a few Lloyd iterations from one start, fitted on a sample.

`holdfast.primitives.kmeans` looks for the best clustering into few clusters; this one is for hundreds of clusters of
hundreds of thousands of points, as faiss does it: the centres are fitted on at most 256 points each, and every point
belongs to the nearest. faiss fits them where it is installed, scikit-learn otherwise, from the same start.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, MissingDependencyError
from holdfast.primitives.lloyd_options import Engine, Start
from holdfast.streams import derive_seed, numpy_stream

Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

_BLOCK = 2**22  # distances held at once


@dataclass(frozen=True, eq=False)
class Centres:
    """Centres, and which is the nearest to each point.

    Attributes:
        labels: number of each point's nearest centre, int64 of shape (n,); some centres may have no points.
        centres: float32 of shape (k, d).
    """

    labels: Ints
    centres: Singles


def lloyd(
    points: NDArray[np.floating],
    k: int,
    *,
    iterations: int = 20,
    seed: int = 0,
    start: Start = "random",
    most_per_centre: int | None = 256,
    engine: Engine = "auto",
) -> Centres:
    """Cluster points around k centres, by Euclidean distance.

    Args:
        points: shape (n, d).
        k: how many centres, at most n.
        iterations: Lloyd's.
        seed: names the random streams of the sample and the start.
        start: where centres start.
        most_per_centre: centres are fitted on a random sample of at most so many points per centre; None for all.
        engine: ``faiss``, ``scikit-learn``, or ``auto``, faiss where it is installed.

    Raises:
        ConfigError: if k isn't from 1 to n.
        DataError: if points are not finite or have no coordinates.
        MissingDependencyError: if faiss is asked for and not installed.
    """
    x = np.ascontiguousarray(points, np.float32)
    if x.ndim != 2 or x.shape[1] == 0:
        raise DataError(f"points have shape {x.shape}; give (n, d)")
    if not 1 <= k <= len(x):
        raise ConfigError(f"k is {k} and there are {len(x)} points; give 1 to {len(x)}")
    if not bool(np.isfinite(x).all()):
        raise DataError("some points are not finite, so they have no distances; leave them out")
    draw = numpy_stream(seed, "lloyd")
    sample = x
    if most_per_centre is not None and len(x) > most_per_centre * k:
        sample = x[np.sort(draw.choice(len(x), most_per_centre * k, replace=False))]
    first = sample[draw.choice(len(sample), k, replace=False)] if start == "random" else _spread(sample, k, seed)
    fit = _fit_faiss if _use_faiss(engine) else _fit_scikit
    centres = fit(sample, first, iterations)
    return Centres(nearest_centre(x, centres), centres)


def nearest_centre(points: Singles, centres: Singles) -> Ints:
    """Number of the centre nearest to each point, the smallest on ties; int64 of shape (n,)."""
    mean = centres.mean(0)
    own = centres - mean
    norms = np.square(own).sum(1)
    nearest = np.empty(len(points), np.int64)
    rows = max(1, _BLOCK // len(centres))
    for begin in range(0, len(points), rows):
        block = points[begin : begin + rows] - mean
        nearest[begin : begin + rows] = (norms - 2 * block @ own.T).argmin(1)
    return nearest


def _spread(sample: Singles, k: int, seed: int) -> Singles:
    from sklearn.cluster import kmeans_plusplus  # noqa: PLC0415 - takes a second to import

    centres: Singles = kmeans_plusplus(sample, k, random_state=derive_seed(seed, "k-means++") % 2**32)[0]
    return centres


def _use_faiss(engine: Engine) -> bool:
    if engine == "scikit-learn":
        return False
    try:
        import faiss  # noqa: F401, PLC0415 - an optional package
    except ImportError as error:
        if engine == "faiss":
            raise MissingDependencyError(
                "faiss is not installed; install it with `pip install 'holdfast[faiss]'`, or use scikit-learn"
            ) from error
        return False
    return True


def _fit_faiss(sample: Singles, first: Singles, iterations: int) -> Singles:
    import faiss  # noqa: PLC0415

    k, d = first.shape
    fitted: Any = faiss.Kmeans(
        d, k, niter=iterations, min_points_per_centroid=1, max_points_per_centroid=1 + len(sample) // k, seed=1234
    )
    fitted.train(sample, init_centroids=first)
    centres: Singles = np.ascontiguousarray(fitted.centroids.reshape(k, d))
    return centres


def _fit_scikit(sample: Singles, first: Singles, iterations: int) -> Singles:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - takes a second to import
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    model = KMeans(len(first), init=first, n_init=1, max_iter=iterations, tol=0, algorithm="lloyd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than centres: some stay empty
        centres: Singles = model.fit(sample).cluster_centers_.astype(np.float32)
    return centres
