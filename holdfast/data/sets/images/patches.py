"""The synthetic patches of the PDE paper (Definition 2.1): a core feature, a spurious one and noise, shuffled.

The paper is https://arxiv.org/abs/2306.04949. Each example has three patches in R^d. One is ``beta_c y v_c``, one
``beta_s a v_s`` and one Gaussian noise, where the attribute a agrees with the label y with probability alpha. With a
strong spurious feature (case 1: beta_c = 0.2, beta_s = 1) plain training learns only that one, which theory predicts
step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError
from holdfast.streams import data_stream


@dataclass(frozen=True, eq=False)
class Patches:
    """A drawn sample and the directions that made it.

    Attributes:
        inputs: float32 of shape (n, 3, d).
        labels: y, as -1 or +1, int64 of shape (n,).
        attributes: a, as -1 or +1, int64 of shape (n,).
        core: v_c, the unit vector of the core feature, shape (d,).
        spurious: v_s, the unit vector of the spurious feature, orthogonal to v_c, shape (d,).
        places: which patch holds the core feature, the spurious feature and the noise, shape (n, 3).
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    attributes: NDArray[np.int64]
    core: NDArray[np.float64]
    spurious: NDArray[np.float64]
    places: NDArray[np.int64]


def draw_features(d: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two random orthonormal directions (v_c, v_s) in R^d."""
    if d < 2:
        raise ConfigError(f"d is {d}; two orthogonal features need at least 2 dimensions")
    core = rng.standard_normal(d)
    core /= np.linalg.norm(core)
    spurious = rng.standard_normal(d)
    spurious -= (spurious @ core) * core
    return core, spurious / np.linalg.norm(spurious)


def make_patches(
    n: int,
    features: tuple[NDArray[np.float64], NDArray[np.float64]],
    rng: np.random.Generator,
    *,
    beta_c: float = 0.2,
    beta_s: float = 1.0,
    alpha: float = 0.98,
    noise: float = 0.125,
) -> Patches:
    """Draw n examples.

    Args:
        n: how many.
        features: v_c and v_s, see `draw_features`.
        rng: where everything is drawn from.
        beta_c: strength of the core feature.
        beta_s: strength of the spurious feature.
        alpha: probability that the attribute agrees with the label.
        noise: standard deviation of each coordinate of the noise patch.

    Returns:
        The sample.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is {alpha}; it is a probability, from 0 to 1")
    core, spurious = features
    y = 2 * rng.integers(2, size=n) - 1
    a = np.where(rng.random(n) < alpha, y, -y)
    ordered = np.stack(
        [
            beta_c * y[:, None] * core,
            beta_s * a[:, None] * spurious,
            noise * rng.standard_normal((n, len(core))),
        ],
        axis=1,
    )
    places = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)
    inputs = np.empty_like(ordered)
    np.put_along_axis(inputs, places[:, :, None], ordered, axis=1)
    return Patches(inputs.astype(np.float32), y, a, core, spurious, places)


@register
@dataclass(frozen=True)
class PatchData(DataSet):
    """Synthetic patches with a core and a spurious feature; labels and attributes 0, 1 stand for -1, +1.

    Attributes:
        beta_c: strength of the core feature.
        beta_s: strength of the spurious feature.
        alpha: probability that the attribute agrees with the label.
        n: how many examples each of training, validation and test has.
        d: dimensions of a patch.
        noise: standard deviation of each coordinate of the noise patch.
        seed: decides the features and the draws.
    """

    name = "patches"
    summary = "synthetic patches: a weak core feature against a strong spurious one, 2 classes, 4 groups"
    recipe: ClassVar[Any] = {
        "model": "cubic",
        "epochs": 401,
        "batch_size": 10_000,
        "learning_rate": 0.1,
        "weight_decay": 0.0,
        "momentum": 0.0,
        "optimizer": "sgd",
    }

    beta_c: float = 0.2
    beta_s: float = 1.0
    alpha: float = 0.98
    n: int = 10_000
    d: int = 50
    noise: float = 0.125
    seed: int = 0

    def draw(self, part: str) -> Patches:
        """The sample behind a part (train, validation or test), with its features."""
        return make_patches(
            self.n,
            draw_features(self.d, data_stream(self.seed, "features")),
            data_stream(self.seed, part),
            beta_c=self.beta_c,
            beta_s=self.beta_s,
            alpha=self.alpha,
            noise=self.noise,
        )

    def load(self, root: Path) -> Splits:
        """Draw the three parts; `root` isn't looked at."""
        train, validation, test = (
            Examples.of(
                drawn.inputs,
                (drawn.labels + 1) // 2,
                attributes=(drawn.attributes + 1) // 2,
                ids=np.arange(self.n) + number * self.n,
                class_names=("-1", "+1"),
                attribute_names=("-1", "+1"),
            )
            for number, drawn in enumerate(map(self.draw, ("train", "validation", "test")))
        )
        return Splits(self.name, train, validation, test)
