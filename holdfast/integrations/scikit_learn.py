"""Selection as a scikit-learn estimator: ``FacilityLocation(10).fit(X).indices_`` are the ten rows that stand for all.

It has scikit-learn's manners (parameters that are only read in `fit`, clones, grid searches, pipelines) and chooses by
`holdfast.primitives.facility_location`, where the mathematics is. In a pipeline it belongs behind scalers and
reductions: last, or before a step that needs no labels, because a transformer can shorten X and not y.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.primitives.facility_location import Comparison, Method, facility_location
from holdfast.streams import torch_stream


class FacilityLocation(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc, call-arg]
    """The rows of X that stand best for all rows, chosen by greedy facility location.

    Args:
        n_samples: how many rows to choose, at most as many as X has.
        metric: ``euclidean``, ``cosine`` or ``exponential``; ``precomputed`` if X is a square matrix of similarities,
            none of them negative.
        method: ``greedy``; ``stochastic``, which looks at a random sample of the rows for each choice and is much
            faster where many are chosen of many; or ``naive``, the slow reference.
        epsilon: what ``stochastic`` may lose of the objective, between 0 and 1.
        least_gain: stop before a row that would add less than this to the objective, so that fewer are chosen.
        random_state: a seed, or a RandomState to draw one from; only ``stochastic`` uses it.

    Attributes:
        indices_: the chosen rows in the order of their choice, int64 of shape (n_samples,).
        weights_: how many rows each stands for, itself included; with `sample_weight` the sum of their weights.
        gains_: what each added to the objective when it was chosen; never increasing unless ``stochastic``.
        n_features_in_: how many columns X had.

    Example:
        >>> chosen = FacilityLocation(2).fit([[0.0], [1.0], [2.0], [9.0]])
        >>> chosen.indices_.tolist(), chosen.weights_.tolist()
        ([1, 3], [3.0, 1.0])
    """

    indices_: NDArray[np.int64]
    weights_: NDArray[np.float64]
    gains_: NDArray[np.float64]

    def __init__(
        self,
        n_samples: int = 10,
        *,
        metric: Comparison = "euclidean",
        method: Method = "greedy",
        epsilon: float = 0.1,
        least_gain: float = 0.0,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_samples = n_samples
        self.metric = metric
        self.method = method
        self.epsilon = epsilon
        self.least_gain = least_gain
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, sample_weight: ArrayLike | None = None) -> FacilityLocation:
        """Choose rows of X.

        Args:
            X: array, tensor or data frame of shape (n, d), finite and dense.
            y: not used; here because pipelines pass it.
            sample_weight: how much each row counts, shape (n,), not negative. A row that counts nothing is not chosen
                either, as if it were missing.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if X, the weights or a parameter is not what it must be.
            TypeError: if X is sparse.
        """
        rows = validate_data(self, _on_the_host(X), dtype=[np.float64, np.float32])
        if self.metric == "precomputed" and rows.shape[0] != rows.shape[1]:
            raise DataError(f"X has shape {rows.shape}; with metric='precomputed' give a square matrix of similarities")
        self._seen = len(rows)
        weights = _checked_weights(sample_weight, len(rows))
        eligible = np.flatnonzero(weights)
        if len(eligible) < len(rows):
            rows = rows[np.ix_(eligible, eligible)] if self.metric == "precomputed" else rows[eligible]
        selection = facility_location(
            torch.from_numpy(np.require(rows, requirements="W")),
            self._budget(len(rows)),
            metric=self.metric,
            method=self.method,
            weights=torch.from_numpy(weights[eligible]),
            least_gain=self.least_gain,
            epsilon=self.epsilon,
            stream=torch_stream(int(check_random_state(self.random_state).randint(2**31)), "facility location"),
        )
        self.indices_ = eligible[selection.chosen.numpy()]
        self.weights_ = selection.weights.numpy()
        self.gains_ = selection.gains.numpy()
        return self

    def transform(self, X: Any) -> Any:
        """The chosen rows of the X that was fitted, or of another table with the same rows in the same order.

        Args:
            X: what was given to `fit`. A tensor gives a tensor, a data frame a data frame, anything else an array.

        Raises:
            NotFittedError: before `fit`.
            ValueError: if X has other rows or columns than what was fitted.
        """
        check_is_fitted(self)
        rows = validate_data(self, _on_the_host(X), dtype=None, reset=False)
        if len(rows) != self._seen:
            raise DataError(f"X has {len(rows)} rows and was fitted with {self._seen}; give the rows that were fitted")
        if isinstance(X, Tensor):
            return X[torch.from_numpy(self.indices_).to(X.device)]
        return X.iloc[self.indices_] if hasattr(X, "iloc") else rows[self.indices_]

    def _budget(self, rows: int) -> int:
        if not isinstance(self.n_samples, int | np.integer) or self.n_samples < 1:
            raise ConfigError(f"n_samples is {self.n_samples!r}; give a whole number of at least 1")
        if self.n_samples > rows:
            raise ConfigError(
                f"n_samples is {self.n_samples} and X has {rows} sample{'s' * (rows != 1)} to choose from; "
                f"give at most {rows}"
            )
        return int(self.n_samples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags


def _checked_weights(sample_weight: ArrayLike | None, rows: int) -> NDArray[np.float64]:
    weights = np.ones(rows) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if weights.shape != (rows,):
        raise DataError(f"sample_weight has shape {weights.shape} and X has {rows} rows; give a weight for each")
    if not weights.any():
        raise DataError("sample weights must contain at least one non-zero number: no row counts anything")
    return weights


def _on_the_host(X: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    if not isinstance(X, Tensor):
        return X
    X = X.detach().cpu()
    return (X.to(torch.float32) if X.dtype == torch.bfloat16 else X).numpy()
