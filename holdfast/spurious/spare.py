"""SPARE: separate the groups of each class early in training, then resample them evenly, without group labels.

Yang, Gan, Dziugaite and Mirzasoleiman, "Identifying Spurious Biases Early in Training through the Lens
of Simplicity Bias" (AISTATS 2024), Algorithm 1. A network learns the easiest feature first. After an epoch or two, the
examples of a class whose shortcut points to another class therefore lie elsewhere in output space: k-means finds them,
the silhouette tells how many groups there are, and training starts again with draws that even the clusters. Use it when
a shortcut is suspected and groups are unknown; the cost is that of plain training plus the first epochs. A silhouette
under 0.7 says that there was nothing to separate.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import CheckpointError, ConfigError, DataError, HoldfastWarning, nearest
from holdfast.primitives.kmeans import canonical_order, kmeans
from holdfast.primitives.silhouette import SilhouetteScore, silhouette_score
from holdfast.primitives.streams import derive_seed
from holdfast.training.clock import Clock
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy, ResetOptimizer, Restart
from holdfast.training.state import write_atomically
from holdfast.training.sweep import Sweep

Output = Literal["softmax", "logits", "features"]
ClassMass = Literal["equal", "natural"]

_DOUBTFUL = 0.7
_VECTORS = {"ids": torch.int64, "labels": torch.int64, "clusters": torch.int64, "p": torch.float64}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Separation:
    """How the examples of one class were separated.

    Attributes:
        k: how many clusters there are.
        lambda_: power of the inverse cluster size in the sampling weights.
        curve: the silhouette for each number of clusters that was tried; empty where there was nothing to choose.
    """

    k: int
    lambda_: float
    curve: Mapping[int, SilhouetteScore]

    @property
    def silhouette(self) -> SilhouetteScore | None:
        """The silhouette of the chosen clusters; none for a class in one cluster."""
        return self.curve.get(self.k)


@dataclass(frozen=True, eq=False)
class Partition:
    """The clusters of every class, and the sampling probabilities that even them.

    Attributes:
        ids: of the examples, int64 of shape (n,).
        labels: class of each, int64 of shape (n,).
        clusters: cluster of each within its class, int64 of shape (n,), from 0 by decreasing size: 0 is the majority.
        p: probability with which each is drawn, float64 of shape (n,).
        classes: what was found in each class, by class.
        about: how it was made: plain values by name.
    """

    ids: Tensor
    labels: Tensor
    clusters: Tensor
    p: Tensor
    classes: Mapping[int, Separation]
    about: Mapping[str, int | float | str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.labels)
        for name, dtype in _VECTORS.items():
            vector = getattr(self, name)
            if vector.shape != (n,) or vector.dtype != dtype:
                raise DataError(f"{name} of a partition are {vector.dtype} {tuple(vector.shape)}; give {dtype} ({n},)")
        width = max((found.k for found in self.classes.values()), default=1)
        described = {label * width + j for label, found in self.classes.items() for j in range(found.k)}
        if n == 0 or int(self.clusters.min()) < 0 or int(self.clusters.max()) >= width:
            raise DataError(f"the partition is empty or has clusters outside 0 to {width - 1}, the largest described")
        for cell in sorted(described ^ set(torch.unique(self.labels * width + self.clusters).tolist())):
            raise DataError(f"cluster {cell % width} of class {cell // width} is not both described and populated")
        if not bool((self.p > 0).all()) or abs(float(self.p.sum()) - 1) > 1e-9:
            raise DataError("the sampling probabilities of the partition are not positive with sum one")

    @property
    def groups(self) -> Tensor:
        """Class and cluster of each example as one number, int64 of shape (n,): groups for any method that uses them.

        They are numbered class by class, in the order of the class ids.
        """
        k = torch.zeros(max(self.classes) + 1, dtype=torch.int64)
        for label, found in self.classes.items():
            k[label] = found.k
        return (k.cumsum(0) - k)[self.labels] + self.clusters

    @property
    def group_names(self) -> tuple[str, ...]:
        """A name per group."""
        return tuple(
            f"class {label}, cluster {j}" for label in sorted(self.classes) for j in range(self.classes[label].k)
        )

    def state_dict(self) -> dict[str, Any]:
        """The partition as tensors and plain values."""
        return {**{name: getattr(self, name) for name in _VECTORS}, **self._plain()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Partition:
        """What `state_dict` gave."""
        classes = {
            record["class"]: Separation(
                record["k"],
                record["lambda"],
                {k: SilhouetteScore(value, method, error) for k, value, method, error in record["curve"]},
            )
            for record in state["classes"]
        }
        return cls(**{name: state[name] for name in _VECTORS}, classes=classes, about=state["about"])

    def save(self, path: Path) -> None:
        """Write the vectors to ``<path>.npz`` and the rest to ``<path>.json``, for any program to read.

        Args:
            path: without suffix; its folder must exist.

        Raises:
            CheckpointError: if a file can't be written.
        """
        packed = io.BytesIO()
        np.savez_compressed(packed, **{name: getattr(self, name).numpy() for name in _VECTORS})
        vectors = packed.getvalue()
        text = json.dumps({**self._plain(), "npz": _digest(vectors)}, indent=2, allow_nan=False)
        write_atomically(path.with_name(f"{path.name}.npz"), vectors)
        write_atomically(path.with_name(f"{path.name}.json"), text.encode())

    @classmethod
    def load(cls, path: Path) -> Partition:
        """Read what `save` wrote; nothing in the files is executed.

        Args:
            path: without suffix.

        Returns:
            The partition.

        Raises:
            CheckpointError: if a file is missing or damaged, or the two are not from one partition.
        """
        try:
            plain = json.loads(path.with_name(f"{path.name}.json").read_bytes())
            vectors = path.with_name(f"{path.name}.npz").read_bytes()
            if plain["npz"] != _digest(vectors):
                raise CheckpointError(
                    f"{path}.npz does not belong to {path}.json: one of them was changed; copy both again"
                )
            with np.load(io.BytesIO(vectors), allow_pickle=False) as arrays:
                return cls.from_state({**plain, **{name: torch.from_numpy(arrays[name]) for name in _VECTORS}})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path}.json and .npz can't be read as a partition ({error}); save it anew"
            ) from error

    def _plain(self) -> dict[str, Any]:
        classes = [
            {
                "class": label,
                "k": found.k,
                "lambda": found.lambda_,
                "curve": [[k, score.value, score.method, score.standard_error] for k, score in found.curve.items()],
            }
            for label, found in sorted(self.classes.items())
        ]
        return {"classes": classes, "about": dict(self.about)}


def separate(
    outputs: Tensor,
    labels: Tensor,
    *,
    k_max: int = 5,
    k: int | None = None,
    tau: float = 0.9,
    lambda_high: float = 2.0,
    class_mass: ClassMass = "equal",
    seed: int = 0,
    ids: Tensor | None = None,
) -> Partition:
    """Cluster the outputs of each class and find the sampling probabilities that even the clusters.

    Nothing depends on the order of the examples. Warns where a class has constant outputs, which stay one cluster, and
    where a silhouette is under 0.7, which in practice marks a majority that was split in two.

    Args:
        outputs: of the model early in training, float of shape (n, d): the whole softmax vector, say.
        labels: true class of each example, int64 of shape (n,).
        k_max: try 2 to this many clusters and keep the number with the highest silhouette, the smallest on ties. A
            class with fewer different outputs gets at most as many clusters.
        k: this many clusters in every class instead; 1 balances classes and nothing else.
        tau: silhouette from which clusters count as well separated.
        lambda_high: power for the classes whose clusters are less well separated; it is 1 for the others.
        class_mass: draw classes equally often, or as often as they occur (`natural`).
        seed: names the random streams.
        ids: of the examples; their positions by default.

    Returns:
        The partition.

    Raises:
        DataError: if shapes disagree, there are no examples, or an output is not finite.
    """
    _check(outputs, labels)
    clusters = torch.zeros_like(labels)
    classes: dict[int, Separation] = {}
    choices = range(2, k_max + 1) if k is None else range(k, k + 1)
    present, counts = torch.unique(labels, return_counts=True)
    by_class = torch.split(labels.argsort(stable=True), counts.tolist())
    for label, positions in zip(present.tolist(), by_class, strict=True):
        members = positions[canonical_order(outputs[positions])]
        clusters[members], curve = _choose_clusters(outputs[members], choices, derive_seed(seed, "spare", label))
        chosen = int(clusters[members].max()) + 1
        separated = chosen == 1 or curve[chosen].value >= tau
        classes[label] = Separation(chosen, 1.0 if separated else lambda_high, curve)
        _log_class(label, classes[label], clusters[members])
    _warn(classes, expected=k != 1)
    p = sampling_probabilities(labels, clusters, {c: found.lambda_ for c, found in classes.items()}, class_mass)
    about = {"k_max": k_max, "k": k, "tau": tau, "lambda_high": lambda_high, "class_mass": class_mass, "seed": seed}
    return Partition(torch.arange(len(labels)) if ids is None else ids, labels, clusters, p, classes, about)


def sampling_probabilities(
    labels: Tensor, clusters: Tensor, lambda_: Mapping[int, float], class_mass: ClassMass = "equal"
) -> Tensor:
    """Draw an example in proportion to its cluster's size to the power of minus lambda, within its class.

    So cluster V of class c has the share of its class that is proportional to ``|V| ** (1 - lambda)``: with lambda 0
    clusters are drawn as they are, with 1 equally often, with 2 the small ones more often than the large.

    Args:
        labels: class of each example, int64 of shape (n,).
        clusters: cluster of each within its class, int64 of shape (n,).
        lambda_: the power by class.
        class_mass: draw classes equally often, or as often as they occur (`natural`).

    Returns:
        float64 of shape (n,) that sums to one.

    Example:
        >>> import torch
        >>> y, cluster = torch.tensor([1, 1, 1, 0]), torch.tensor([0, 0, 1, 0])
        >>> sampling_probabilities(y, cluster, {0: 1.0, 1: 1.0}).tolist()
        [0.125, 0.125, 0.25, 0.5]
    """
    if class_mass not in get_args(ClassMass):
        raise ConfigError(f"there is no class_mass {class_mass!r}{nearest(class_mass, get_args(ClassMass))}")
    counts = torch.bincount(labels).to(torch.float64)
    power = torch.zeros_like(counts)
    for label, value in lambda_.items():
        power[label] = value
    width = int(clusters.max()) + 1
    cell = labels * width + clusters
    sizes = torch.bincount(cell, minlength=len(counts) * width).view(-1, width).to(torch.float64)
    shares = torch.where(sizes > 0, torch.pow(sizes, 1 - power[:, None]), 0.0)
    mass = counts if class_mass == "natural" else (counts > 0).to(torch.float64)
    scale = mass / mass.sum() / shares.sum(1)
    return (scale[:, None] * shares / sizes).flatten()[cell]


@dataclass
class Spare(Policy):
    """Train a little, cluster the outputs of each class, start again with draws that even the clusters.

    Attributes:
        infer_epoch: infer the clusters after this many epochs, which come on top of the budget.
        k_max: try 2 to this many clusters in each class.
        k: this many clusters in every class instead of a choice by silhouette.
        tau: silhouette from which the clusters of a class count as well separated.
        lambda_high: how strongly small clusters are preferred in the other classes; 1 evens clusters.
        output: what is clustered; `features` are the inputs of the last linear layer.
        class_mass: draw classes equally often, or as often as they occur (`natural`).
        restart: train again from the start. Otherwise keep the weights, clear the optimizer, and count the first epochs
            as part of the budget.
    """

    name: ClassVar[str] = "spare"

    infer_epoch: int = 2
    k_max: int = 5
    k: int | None = None
    tau: float = 0.9
    lambda_high: float = 2.0
    output: Output = "softmax"
    class_mass: ClassMass = "equal"
    restart: bool = True
    partition: Partition | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option, least in (("infer_epoch", 0), ("k_max", 2), ("k", 1), ("lambda_high", 0)):
            value = getattr(self, option)
            if value is not None and not value >= least:
                raise ConfigError(f"{option} of spare is {value}; give at least {least}")
        if not -1 <= self.tau <= 1:
            raise ConfigError(f"tau of spare is {self.tau}; a silhouette is from -1 to 1")
        if self.output not in get_args(Output):
            raise ConfigError(f"spare can't cluster {self.output!r}{nearest(self.output, get_args(Output))}")

    @property
    def warmup_epochs(self) -> int:
        """The epochs before the clusters are inferred, where training starts again after them."""
        return self.infer_epoch if self.restart else 0

    def due(self, clock: Clock) -> bool:
        """Once, after the first epochs."""
        return clock.starts_epoch and clock.epoch == self.infer_epoch

    def update(self, context: Context) -> Plan:
        """Sampling probabilities from the clusters of what earlier policies left."""
        active = context.active_positions()
        found = separate(
            harvest(context.outputs, active, self.output),
            context.examples.labels[active],
            k_max=self.k_max,
            k=self.k,
            tau=self.tau,
            lambda_high=self.lambda_high,
            class_mass=self.class_mass,
            seed=context.seed,
            ids=context.examples.ids[active],
        )
        about = {**found.about, "output": self.output, "infer_epoch": self.infer_epoch}
        self.partition = replace(found, about=about)
        if self.infer_epoch > 0:
            context.request(Restart() if self.restart else ResetOptimizer())
        weights = torch.zeros(len(context.examples), dtype=torch.float64)
        weights[active] = found.p
        return Plan(sample_weight=weights)

    def state_dict(self) -> dict[str, Any]:
        """The partition, once there is one."""
        return {} if self.partition is None else {"partition": self.partition.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the partition."""
        self.partition = Partition.from_state(state["partition"]) if "partition" in state else None


def harvest(sweep: Sweep, positions: Tensor, output: Output) -> Tensor:
    """What SPARE clusters, of the examples at `positions`, in that order: float32 of shape (positions, d)."""
    read = {"softmax": sweep.probabilities, "logits": sweep.logits, "features": sweep.features}
    return read[output](positions)


def _choose_clusters(points: Tensor, choices: range, seed: int) -> tuple[Tensor, dict[int, SilhouetteScore]]:
    """The clusters (n,) whose number has the highest silhouette, and the silhouette of every number tried."""
    best, curve = torch.zeros(len(points), dtype=torch.int64), dict[int, SilhouetteScore]()
    if _constant(points):
        return best, curve
    for k in choices:
        tried = kmeans(points, k, seed=seed)
        if tried.k == 1 or tried.k in curve:
            break
        curve[tried.k] = silhouette_score(points, tried.clusters, seed=seed)
        highest = max(curve, key=lambda number: (round(curve[number].value, 12), -number))
        if highest == tried.k:
            best = tried.clusters
    return best, curve


def _digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def _constant(points: Tensor) -> bool:
    """Whether all points are the same but for the rounding of their type."""
    extent = float((points.amax(0) - points.amin(0)).max())
    return extent <= 4 * torch.finfo(points.dtype).eps * float(points.abs().max())


def _check(outputs: Tensor, labels: Tensor) -> None:
    if outputs.ndim != 2 or labels.shape != outputs.shape[:1] or len(labels) == 0:
        raise DataError(
            f"outputs have shape {tuple(outputs.shape)} and labels {tuple(labels.shape)}; give (n, d) and (n,)"
        )
    broken = (~torch.isfinite(outputs).all(1)).nonzero().flatten()
    if len(broken):
        raise DataError(
            f"the outputs of {len(broken)} examples are not finite, the first at position {int(broken[0])}; "
            "lower the learning rate"
        )


def _log_class(label: int, found: Separation, clusters: Tensor) -> None:
    share = float((clusters == 0).double().mean())
    score = "none" if found.silhouette is None else f"{found.silhouette.value:.3f}"
    _log.info(
        "class %d: %d clusters, the largest with %.1f %%, silhouette %s, lambda %g",
        label, found.k, 100 * share, score, found.lambda_,
    )  # fmt: skip


def _warn(classes: Mapping[int, Separation], *, expected: bool) -> None:
    """Say which classes have nothing to separate, in one sentence each for all of them."""
    constant = [str(label) for label, found in classes.items() if found.silhouette is None and expected]
    if constant:
        warnings.warn(
            f"the outputs of class {', '.join(constant)} are constant, so there is one cluster; infer later, or raise "
            "the learning rate",
            HoldfastWarning,
            stacklevel=3,
        )
    doubtful = [
        f"{label} ({found.silhouette.value:.2f})"
        for label, found in classes.items()
        if found.silhouette is not None and found.silhouette.value < _DOUBTFUL
    ]
    if doubtful:
        warnings.warn(
            f"the silhouette of class {', '.join(doubtful)} is under {_DOUBTFUL}, which often marks a majority split "
            "in two; infer at another epoch, or look at the clusters before you trust them",
            HoldfastWarning,
            stacklevel=3,
        )
