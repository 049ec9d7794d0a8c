"""Can two samples be told apart? A classifier's area under the curve on examples that it did not see.

Two samples of one distribution can't be told apart: the area is 1/2 whatever the classifier. If a simple one tells them
apart, they differ (Lopez-Paz and Oquab, 2017, https://arxiv.org/abs/1610.06545). The classifier is a logistic
regression on the leading principal components, which are scaled alike, so a few dozen examples of a thousand
numbers each are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.streams import torch_stream

_COMPONENTS = 32
_FOLDS = 5
_MOST = 2_000  # of either sample
#: Fewer examples of a sample say nothing.
FEWEST = 10


@dataclass(frozen=True)
class ToldApart:
    """How well two samples are told apart.

    Attributes:
        area: under the curve: how often an example of the first is ranked above one of the second; 1/2 is guessing.
        standard_error: of the area, by Hanley and McNeil (1982).
    """

    area: float
    standard_error: float


def told_apart(first: Tensor, second: Tensor, *, seed: int = 0) -> ToldApart | None:
    """How well a logistic regression tells two samples apart, by cross-validation in five parts.

    Args:
        first: float of shape (n, d), finite.
        second: float of shape (m, d), finite.
        seed: names the random stream.

    Returns:
        The area under the curve; None where one has fewer than ten examples.
    """
    if min(len(first), len(second)) < FEWEST:
        return None
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second, and few need it
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415

    samples = [_some(one, torch_stream(seed, "told-apart", place)) for place, one in enumerate((first, second))]
    points = _components(torch.cat(samples)).numpy()
    member = np.repeat([1, 0], [len(one) for one in samples])
    fold = np.concatenate([np.arange(len(one)) % _FOLDS for one in samples])  # they were shuffled
    areas = []
    for number in range(_FOLDS):
        held = fold == number
        rule = LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000).fit(points[~held], member[~held])
        areas.append(roc_auc_score(member[held], rule.decision_function(points[held])))
    area = float(np.mean(areas))
    return ToldApart(area, _standard_error(area, len(samples[0]), len(samples[1])))


def _some(sample: Tensor, stream: torch.Generator) -> Tensor:
    return sample[torch.randperm(len(sample), generator=stream)[:_MOST]]


def _components(points: Tensor) -> Tensor:
    """The leading principal components, each of deviation one; all of them where there are few."""
    centred = points.double() - points.double().mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    kept = min(_COMPONENTS, int((sizes > 1e-6 * sizes[0].clamp(min=1e-12)).sum()))
    scaled: Tensor = left[:, :kept] * len(points) ** 0.5
    return scaled


def _standard_error(area: float, n: int, m: int) -> float:
    q1, q2 = area / (2 - area), 2 * area * area / (1 + area)
    variance = area * (1 - area) + (n - 1) * (q1 - area * area) + (m - 1) * (q2 - area * area)
    return math.sqrt(max(variance, 0.0) / (n * m))
