"""PDE's cubic network on its synthetic patches, in closed form (PDE, Definition 2.1 and eq. 2.3).

Half of what an example of the synthetic study consists of is shared: its core and its spurious patch are one of two
vectors each. Taken apart into distinct patches, scores and gradients of the whole sample cost one pair of matrix
products over the noise patches, five times less than autograd on the examples, and every term of the paper's analysis
can be read off. Use it to train the synthetic study, and to check what the theory says about a trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.sets.images.patches import Patches
from holdfast.errors import DataError
from holdfast.models.networks.cubic import CubicCNN

#: Rows of `PatchSample.distinct` that hold features; noise patches come after them.
_N_FEATURE_ROWS = 4


@dataclass(frozen=True, eq=False)
class PatchSample:
    """Examples of Definition 2.1, each as a label, an attribute and a noise patch.

    Attributes:
        labels: y, -1 or +1, floating point of shape (n,).
        attributes: a, -1 or +1, floating point of shape (n,).
        noise: the noise patches, (n, d).
        core: v_c, a unit vector, (d,).
        spurious: v_s, a unit vector orthogonal to v_c, (d,).
        beta_c: strength of the core feature.
        beta_s: strength of the spurious feature.
    """

    labels: Tensor
    attributes: Tensor
    noise: Tensor
    core: Tensor
    spurious: Tensor
    beta_c: float
    beta_s: float

    @classmethod
    def of(cls, drawn: Patches, dtype: torch.dtype = torch.float32) -> PatchSample:
        """Take a drawn sample apart; the strengths are read off its patches.

        Args:
            drawn: from `holdfast.data.sets.images.patches`.
            dtype: what to compute in.

        Returns:
            The same examples in the same order.

        Raises:
            DataError: if the sample is empty.
        """
        if not len(drawn.labels):
            raise DataError("the sample of patches is empty; draw at least one example")
        ordered = np.take_along_axis(drawn.inputs.astype(np.float64), drawn.places[:, :, None], axis=1)
        return cls(
            labels=torch.tensor(drawn.labels, dtype=dtype),
            attributes=torch.tensor(drawn.attributes, dtype=dtype),
            noise=torch.tensor(ordered[:, 2], dtype=dtype),
            core=torch.tensor(drawn.core, dtype=dtype),
            spurious=torch.tensor(drawn.spurious, dtype=dtype),
            beta_c=float(drawn.labels @ (ordered[:, 0] @ drawn.core)) / len(drawn.labels),
            beta_s=float(drawn.attributes @ (ordered[:, 1] @ drawn.spurious)) / len(drawn.labels),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: Tensor) -> PatchSample:
        """The examples at `positions`, an index or a mask."""
        return replace(
            self,
            labels=self.labels[positions],
            attributes=self.attributes[positions],
            noise=self.noise[positions],
        )

    def with_clean_noise(self) -> PatchSample:
        """The same examples with their noise projected off both features, for which the recursions are exact."""
        features = torch.stack([self.core, self.spurious])
        return replace(self, noise=self.noise - (self.noise @ features.T) @ features)

    @property
    def inputs(self) -> Tensor:
        """The examples as a network sees them: core, spurious and noise patch, (n, 3, d)."""
        core = self.beta_c * self.labels[:, None] * self.core
        spurious = self.beta_s * self.attributes[:, None] * self.spurious
        return torch.stack([core, spurious, self.noise], dim=1)

    @property
    def aligned(self) -> Tensor:
        """Which examples are in S1, where the attribute agrees with the label, bool of shape (n,)."""
        return self.attributes == self.labels

    @property
    def alpha_hat(self) -> float:
        """The share of S1."""
        return float(self.aligned.double().mean())

    @property
    def cells(self) -> Tensor:
        """Cell of each example, int64 of shape (n,): 0, 1, 2, 3 for (y, a) = (-, -), (-, +), (+, -), (+, +)."""
        return (self.labels + (self.attributes + 3) / 2).long()

    @cached_property
    def distinct(self) -> Tensor:
        """Every patch once, (4 + n, d): the core patch of y = -1 and +1, the spurious one of a = -1 and +1, noise."""
        core, spurious = self.beta_c * self.core, self.beta_s * self.spurious
        return torch.cat([torch.stack([-core, core, -spurious, spurious]), self.noise])

    @cached_property
    def feature_rows(self) -> tuple[Tensor, Tensor]:
        """The rows of `distinct` that are each example's core and spurious patch, int64 of shape (n,) each."""
        return (self.labels > 0).long(), (self.attributes > 0).long() + 2


class Filters(NamedTuple):
    """The parameters of a cubic network.

    Attributes:
        weights: w_j, (filters, d).
        bias: b_j, (filters,), or None in the paper's form, which has none.
        signs: s_j, -1 or +1, (filters,).
    """

    weights: Tensor
    bias: Tensor | None
    signs: Tensor

    @classmethod
    def of(cls, model: CubicCNN) -> Filters:
        """A copy of a network's parameters."""
        weights, bias = model.filters.weight, model.filters.bias
        return cls(weights.detach().clone(), None if bias is None else bias.detach().clone(), model.signs.clone())


class Gradient(NamedTuple):
    """Gradient of the mean logistic loss.

    Attributes:
        weights: (filters, d).
        bias: (filters,), or None for a network without.
    """

    weights: Tensor
    bias: Tensor | None


class GradientParts(NamedTuple):
    """The three terms of the gradient of a network in the paper's form; their sum is the gradient.

    Attributes:
        core: along v_c, (filters, d).
        spurious: along v_s, (filters, d).
        noise: in the span of the noise patches, (filters, d).
    """

    core: Tensor
    spurious: Tensor
    noise: Tensor


class Probes(NamedTuple):
    """How much of each feature the filters hold.

    Attributes:
        core: the largest |<w_j, v_c>|.
        spurious: the largest |<w_j, v_s>|.
    """

    core: float
    spurious: float


def feature_probes(weights: Tensor, v_core: Tensor, v_spurious: Tensor) -> Probes:
    """The paper's measure of what was learned: the largest alignment of a filter with each feature.

    Args:
        weights: (filters, d).
        v_core: unit vector of the core feature, (d,).
        v_spurious: unit vector of the spurious feature, (d,).

    Returns:
        Both probes.

    Example:
        >>> import torch
        >>> feature_probes(torch.tensor([[0.5, 0.0], [-2.0, 0.25]]), torch.tensor([1.0, 0]), torch.tensor([0, 1.0]))
        Probes(core=2.0, spurious=0.25)
    """
    return Probes(float((weights @ v_core).abs().max()), float((weights @ v_spurious).abs().max()))


def scores(filters: Filters, sample: PatchSample) -> Tensor:
    """The network's f of every example, (n,): its cubed responses to the core, spurious and noise patch, with signs."""
    return _scores(_responses(filters, sample).pow(3) @ filters.signs, sample)


def loss(filters: Filters, sample: PatchSample) -> float:
    """Mean logistic loss of f."""
    return float(F.softplus(-sample.labels * scores(filters, sample)).mean())


def slopes(filters: Filters, sample: PatchSample) -> Tensor:
    """l_i = sigmoid(-y_i f(x_i)) of every example, (n,): what it still pulls with, 1/2 at the start."""
    return torch.sigmoid(-sample.labels * scores(filters, sample))


def gradient(filters: Filters, sample: PatchSample) -> Gradient:
    """The gradient of `loss`, for any signs and with or without bias.

    Args:
        filters: where.
        sample: on which examples; its `distinct` patches are made once and kept.

    Returns:
        The gradient by parameter.
    """
    responses = _responses(filters, sample)
    squares = responses.square()
    f = _scores((squares * responses) @ filters.signs, sample)
    pull = torch.sigmoid(-sample.labels * f) * sample.labels
    pulls = torch.cat([pull.new_zeros(_N_FEATURE_ROWS), pull])
    for rows in sample.feature_rows:
        pulls.index_add_(0, rows, pull)
    squares *= pulls[:, None]
    factor = (-3 / len(sample)) * filters.signs
    bias = None if filters.bias is None else factor * squares.sum(dim=0)
    return Gradient(factor[:, None] * (squares.T @ sample.distinct), bias)


def gradient_parts(weights: Tensor, sample: PatchSample) -> GradientParts:
    """The gradient of a network in the paper's form (no bias, all signs +1), as the analysis splits it.

    The core term is pulled by every example; the spurious one by S1 against S2, so that it vanishes where both pull
    alike, which is what a balanced warm-up set is for.

    Args:
        weights: w_j, (filters, d).
        sample: on which examples.

    Returns:
        The three terms.
    """
    slope = slopes(Filters(weights, None, weights.new_ones(len(weights))), sample)
    difference = (slope * sample.labels * sample.attributes).sum()
    core = sample.beta_c**3 * (weights @ sample.core).square() * slope.sum()
    spurious = sample.beta_s**3 * (weights @ sample.spurious).square() * difference
    noise = ((weights @ sample.noise.T).square() * slope * sample.labels) @ sample.noise
    factor = -3 / len(sample)
    return GradientParts(
        factor * torch.outer(core, sample.core), factor * torch.outer(spurious, sample.spurious), factor * noise
    )


def _responses(filters: Filters, sample: PatchSample) -> Tensor:
    """What every filter answers to every distinct patch, (4 + n, filters)."""
    return F.linear(sample.distinct, filters.weights, filters.bias)


def _scores(votes: Tensor, sample: PatchSample) -> Tensor:
    """The scores of examples, (n,), from the network's votes on distinct patches, (4 + n,)."""
    core, spurious = sample.feature_rows
    return votes[core] + votes[spurious] + votes[_N_FEATURE_ROWS:]
