"""The clusters of every class, with the sampling probabilities that even them, as a value that can be saved and shown.

Any method that uses groups can take them: `ClusterPartition.groups` is one number per example.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import CheckpointError, DataError
from holdfast.files import write_atomically
from holdfast.primitives.silhouette import SilhouetteScore

_VECTORS = {"ids": torch.int64, "labels": torch.int64, "clusters": torch.int64, "p": torch.float64}


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
class ClusterPartition:
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
        width = max((separation.k for separation in self.classes.values()), default=1)
        described = {label * width + j for label, separation in self.classes.items() for j in range(separation.k)}
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
        for label, separation in self.classes.items():
            k[label] = separation.k
        return (k.cumsum(0) - k)[self.labels] + self.clusters

    @property
    def group_names(self) -> tuple[str, ...]:
        """A name per group."""
        return tuple(
            f"class {label}, cluster {j}" for label in sorted(self.classes) for j in range(self.classes[label].k)
        )

    def for_ids(self, ids: Tensor) -> ClusterPartition:
        """The same partition with its examples in the order of `ids`.

        Args:
            ids: int64 of shape (n,).

        Returns:
            The partition in that order.

        Raises:
            DataError: if the partition is of other examples.
        """
        order, wanted = self.ids.argsort(), ids.argsort()
        if not torch.equal(self.ids[order], ids[wanted]):
            raise DataError(
                f"the partition is of {len(self.ids)} examples and these are {len(ids)}, with other ids; infer it anew "
                "for this data set"
            )
        rows = torch.empty_like(order)
        rows[wanted] = order
        return replace(self, **{name: getattr(self, name)[rows] for name in _VECTORS})

    def state_dict(self) -> dict[str, Any]:
        """The partition as tensors and plain values."""
        return {**{name: getattr(self, name) for name in _VECTORS}, **self._plain()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ClusterPartition:
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
    def load(cls, path: Path) -> ClusterPartition:
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
                "k": separation.k,
                "lambda": separation.lambda_,
                "curve": [
                    [k, score.value, score.method, score.standard_error] for k, score in separation.curve.items()
                ],
            }
            for label, separation in sorted(self.classes.items())
        ]
        return {"classes": classes, "about": dict(self.about)}


def _digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()
