"""Vehicle (Duarte, Hu 2004): 23 sensor nodes by a road tell two kinds of vehicle apart by sound and ground vibration.

Read from ``vehicle.mat``, as multi-task learning papers pass it on (cell arrays X and Y, a cell per node), or from the
JSON files of Ditto's authors, which are that file standardised and split. Training sets are cut to the published sizes,
7 to 534; all other samples are for the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.clients.partitions import Partition, Rows, hold_out_tenth
from holdfast.data.readers.leaf import User, federate, leaf_folder, read_leaf
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError
from holdfast.streams import data_stream

_NODES, _FEATURES = 23, 100
_LEGACY_SEED = 666


def published_sizes(nodes: int = _NODES) -> Rows:
    """Training samples of each node: int(LogNormal(3, 1.2)) + 5 from NumPy's legacy generator, seed 666 + node."""
    draws = [np.random.RandomState(_LEGACY_SEED + node).lognormal(3, 1.2) for node in range(nodes)]
    return np.array(draws).astype(np.int64) + 5


def standardise(features: NDArray[Any]) -> NDArray[np.float32]:
    """Each feature minus its mean by its standard deviation over the node's samples; 0 where it never changes."""
    values = features.astype(np.float64)
    deviation = values.std(0)
    centred = (values - values.mean(0)) / np.where(deviation == 0, 1, deviation)
    result: NDArray[np.float32] = np.where(deviation == 0, 0, centred).astype(np.float32)
    return result


def node_arrays(x: Any, y: Any) -> User:
    """A node's samples, float32 (n, 100), and classes: 0 for -1, 1 for +1."""
    features, signs = np.asarray(x, np.float64), np.asarray(y, np.float64).reshape(-1)
    if features.ndim != 2 or features.shape[1] != _FEATURES:
        raise ValueError(f"a sample must have {_FEATURES} features, and X has shape {features.shape}")
    if len(features) != len(signs):
        raise ValueError(f"there are {len(features)} samples and {len(signs)} labels")
    if not np.isfinite(features).all():
        raise ValueError("X has numbers that aren't finite")
    if not np.isin(signs, (-1, 1)).all():
        raise ValueError("labels must be -1 or 1")
    return features.astype(np.float32), (signs > 0).astype(np.int64)


def read_mat(path: Path) -> list[User]:
    """Read the cells X and Y of a Matlab file, a pair per node, standardised by node.

    Raises:
        DataError: if the file is damaged or has something else in it.
    """
    from scipy.io.matlab import MatReadError, loadmat  # type: ignore[import-untyped]  # noqa: PLC0415 - slow

    try:
        content = loadmat(path, variable_names=["X", "Y"])
    except (
        MatReadError,
        OSError,
        ValueError,
        TypeError,
        NotImplementedError,
        EOFError,
        IndexError,
        MemoryError,
    ) as error:
        raise DataError(f"{path} can't be read as a Matlab file up to version 7 ({error}); get it again") from error
    for key in ("X", "Y"):
        if key not in content or content[key].dtype != object:
            raise DataError(f"{path} has no cell array {key}; vehicle.mat has X and Y with a cell per sensor node")
    cells = [content[key].ravel() for key in ("X", "Y")]
    if len(cells[0]) != _NODES or len(cells[1]) != _NODES:
        raise DataError(
            f"{path} has {len(cells[0])} cells of X and {len(cells[1])} of Y instead of {_NODES}; get it again"
        )
    nodes, sizes = [], published_sizes()
    for node, (x, y) in enumerate(zip(*cells, strict=True)):
        try:
            _, labels = node_arrays(x, y)
        except (TypeError, ValueError) as error:
            raise DataError(f"node {node} of {path} has values that don't fit: {error}") from error
        nodes.append((standardise(np.asarray(x)), labels))
        if len(labels) <= sizes[node]:
            raise DataError(
                f"node {node} of {path} has {len(labels)} samples, and {sizes[node]} are for training; get the whole "
                "file"
            )
    return nodes


@register_federation
@dataclass(frozen=True)
class Vehicle(FederatedData):
    """A client per sensor node. The last tenth of its training samples is its validation data."""

    name = "vehicle"
    summary = "Vehicle sensors: 23 nodes, 100 acoustic and seismic features, 2 classes, for a linear SVM"
    files = (RemoteFile("vehicle/vehicle.mat", also=("vehicle/train", "vehicle/data")),)
    by_hand = (
        "put vehicle.mat (cell arrays X and Y of 23 cells; it comes with code for federated multi-task learning) into "
        "vehicle/, or the folders train and test of https://github.com/litian96/ditto, data/vehicle/data"
    )
    recipe: ClassVar[Any] = TrainingRecipe("svm", 0.1, 32, rounds=600, cohort=10, local_steps=1)

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read vehicle.mat, shuffle each node's samples by the seed and cut; or read the published split as it is."""
        mat = root / "vehicle" / "vehicle.mat"
        if mat.exists():
            return _cut(read_mat(mat), seed)
        folder = leaf_folder(self.locate(root, "vehicle/vehicle.mat", "vehicle/train", "vehicle/data").parent)
        users = read_leaf(folder, node_arrays, None, seed)
        if users.test is None:
            raise DataError(f"{folder} isn't split into train and test; put vehicle.mat there, or both folders")
        return federate(users, 2, seed, shuffle=False, task="margin")


def _cut(nodes: list[User], seed: int) -> Clients:
    counts = np.array([len(labels) for _, labels in nodes])
    rows = Partition(np.arange(counts.sum()), counts).shuffled(data_stream(seed, "vehicle"))
    in_training = rows.ranks() < np.repeat(published_sizes(), counts)
    inputs = torch.from_numpy(np.concatenate([features for features, _ in nodes]))
    labels = torch.from_numpy(np.concatenate([labels for _, labels in nodes]))
    train, validation = hold_out_tenth(rows.take(in_training))
    parts = [part.gather(inputs, labels) for part in (train, validation, rows.take(~in_training))]
    names = tuple(f"f_{node:05d}" for node in range(len(nodes)))
    return Clients(parts[0], parts[1], parts[2], classes=2, task="margin", names=names).check()
