"""SPARE's theoretical data: every class has a core feature, every attribute value a spurious one, all orthogonal.

``x = v_y + v_s + noise`` with labels y of -1 and +1. How many examples each class has of each attribute value is given
exactly, because group sizes are what the theory (SPARE, Section 5.2) speaks about. Noise has one strength along core
features, one along spurious features and one everywhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import ConfigError


@dataclass(frozen=True, eq=False)
class MixtureSample:
    """Drawn examples.

    Attributes:
        inputs: (n, d).
        labels: -1 or +1, floating point of shape (n,).
        attributes: which spurious feature each example has, int64 of shape (n,).
    """

    inputs: Tensor
    labels: Tensor
    attributes: Tensor


@dataclass(frozen=True, eq=False)
class Mixture:
    """Features and group sizes.

    Attributes:
        core: the core feature of the classes -1 and +1, (2, d).
        spurious: the feature of each attribute value, (attributes, d).
        counts: how many examples of each class have each attribute value, int64 of shape (2, attributes).
    """

    core: Tensor
    spurious: Tensor
    counts: Tensor

    @classmethod
    def orthogonal(
        cls,
        dimension: int,
        core_energy: float,
        spurious_energy: float,
        counts: Tensor,
        generator: torch.Generator,
    ) -> Mixture:
        """Features in random orthogonal directions.

        Args:
            dimension: d.
            core_energy: |v_c|^2 as a share of d.
            spurious_energy: |v_s|^2 as a share of d.
            counts: int64 of shape (2, attributes).
            generator: random stream.

        Returns:
            The mixture.

        Raises:
            ConfigError: if there are more features than dimensions.
        """
        n_features = 2 + counts.shape[1]
        if dimension < n_features:
            raise ConfigError(f"{n_features} orthogonal features need as many dimensions; d is {dimension}, raise it")
        directions = torch.linalg.qr(torch.randn(dimension, n_features, generator=generator))[0].T
        core = math.sqrt(core_energy * dimension) * directions[:2]
        return cls(core, math.sqrt(spurious_energy * dimension) * directions[2:], counts)

    @property
    def n(self) -> int:
        """How many examples there are."""
        return int(self.counts.sum())

    @property
    def dimension(self) -> int:
        """The dimension d of the inputs."""
        return self.core.shape[1]

    def draw(
        self, generator: torch.Generator, *, core_noise: float, spurious_noise: float, other_noise: float
    ) -> MixtureSample:
        """Draw the examples, class by class and attribute by attribute.

        Args:
            generator: random stream.
            core_noise: standard deviation along every core feature's direction.
            spurious_noise: standard deviation along every spurious feature's direction.
            other_noise: standard deviation along every direction orthogonal to all features.

        Returns:
            The sample.
        """
        n_attributes = self.counts.shape[1]
        groups = torch.repeat_interleave(torch.arange(2 * n_attributes), self.counts.flatten())
        classes, attributes = groups // n_attributes, groups % n_attributes
        directions = torch.nn.functional.normalize(torch.cat([self.core, self.spurious]))
        along = torch.tensor([core_noise] * 2 + [spurious_noise] * n_attributes)
        noise = torch.randn(self.n, self.dimension, generator=generator)
        on_features = noise @ directions.T
        noise = other_noise * (noise - on_features @ directions) + (on_features * along) @ directions
        return MixtureSample(self.core[classes] + self.spurious[attributes] + noise, 2.0 * classes - 1, attributes)
