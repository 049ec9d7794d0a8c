"""CIFAR-10, from the Hugging Face hub's parquet files or from the original binary archive, with the same result.

Pixels stay uint8 in memory (180 MB); a batch is normalised when it is gathered.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.readers.decoding import decode
from holdfast.data.readers.idx import split_validation
from holdfast.data.remote_files import RemoteFile
from holdfast.data.transforms import Normalise
from holdfast.errors import DataError, nearest

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2471, 0.2435, 0.2616)

_RECORD = 1 + 3 * 32 * 32
_BLOCK = 500

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_binary(paths: list[Path]) -> Labelled:
    """Read CIFAR-10's original form: records of a label byte and 3,072 pixel bytes.

    Args:
        paths: the ``.bin`` files, in order.

    Returns:
        uint8 images (n, 3, 32, 32) and int64 labels (n,).

    Raises:
        DataError: if a file is truncated or has a label above 9.
    """
    records = []
    for path in paths:
        content = np.fromfile(path, np.uint8)
        if len(content) == 0 or len(content) % _RECORD:
            raise DataError(
                f"{path} has {len(content)} bytes, not a multiple of {_RECORD}; it is truncated: fetch it again"
            )
        records.append(content.reshape(-1, _RECORD))
        _check_labels(path, records[-1][:, 0])
    joined = np.concatenate(records)
    return np.ascontiguousarray(joined[:, 1:]).reshape(-1, 3, 32, 32), joined[:, 0].astype(np.int64)


def read_parquet(path: Path) -> Labelled:
    """Read encoded images (PNG or JPEG) and labels as the Hugging Face hub stores them, decoding in threads.

    Args:
        path: a file with the columns ``img`` (or ``image``; a struct with ``bytes``) and ``label``.

    Returns:
        uint8 images (n, 3, 32, 32) and int64 labels (n,).

    Raises:
        DataError: if the file is damaged, lacks a column, or an image in it can't be decoded.
    """
    import pyarrow as pa  # noqa: PLC0415 - only this data set needs it, and it takes a while
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} isn't a readable parquet file: {error}") from error
    column = next((name for name in ("img", "image") if name in table.column_names), None)
    for wanted, there in (("img", column), ("label", "label" if "label" in table.column_names else None)):
        if there is None:
            raise DataError(f"{path} has no column {wanted!r}{nearest(wanted, table.column_names)}")
    encoded = pc.struct_field(table[column].combine_chunks(), "bytes").to_pylist()
    labels = table["label"].to_numpy().astype(np.int64)
    _check_labels(path, labels)
    images = np.empty((len(labels), 32, 32, 3), np.uint8)

    def decode_rows(rows: range) -> None:
        for row in rows:
            name = f"in row {row} of {path}"
            image = decode(encoded[row] or b"", name, remedy="get the file again")
            if image.size != (32, 32):
                raise DataError(
                    f"the image {name} has {image.width} x {image.height} pixels, not 32 x 32; get the file again"
                )
            images[row] = np.asarray(image)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        blocks = range(0, len(labels), _BLOCK)
        list(pool.map(decode_rows, (range(start, min(start + _BLOCK, len(labels))) for start in blocks)))
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels


@register
@dataclass(frozen=True)
class Cifar10(DataSet):
    """Small colour photographs of ten kinds of things.

    Attributes:
        validation: how many of the official training images are held out for validation.
        seed: decides which.
    """

    name = "cifar10"
    summary = "60,000 colour photographs, 32x32, 10 classes"
    files = (
        RemoteFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            size=170_052_171,
            unpacks_to="cifar-10-batches-bin",
            also=("cifar10/train.parquet",),
            mirrors=("https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",),
        ),
    )
    recipe: ClassVar[Any] = {
        "model": "resnet20",
        "epochs": 200,
        "batch_size": 128,
        "learning_rate": 0.1,
        "weight_decay": 1e-4,
        "momentum": 0.9,
        "optimizer": "sgd",
        "schedule": "steps",
        "milestones": (0.6, 0.85),
        "rate_warmup": 0.1,
        "augment": "crop-flip",
    }
    class_names: ClassVar[Any] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )

    validation: int = 5_000
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Read whichever form is there, the parquet files first."""
        if (root / "cifar10/train.parquet").exists():
            official = read_parquet(root / "cifar10/train.parquet")
            test = read_parquet(self.locate(root, "cifar10/test.parquet"))
        else:
            folder = self.locate(root, "cifar-10-batches-bin")
            batches = [self.locate(folder, f"data_batch_{number}.bin") for number in range(1, 6)]
            official, test = read_binary(batches), read_binary([self.locate(folder, "test_batch.bin")])
        n = len(official[1])
        train, held_out = split_validation(n, self.validation, self.seed)

        def part(labelled: Labelled, rows: NDArray[np.int64], first_id: int = 0) -> Examples:
            images, labels = torch.from_numpy(labelled[0]), labelled[1]
            return Examples.of(
                images[torch.from_numpy(rows)],
                labels[rows],
                ids=rows + first_id,
                class_names=self.class_names,
                transform=Normalise(CIFAR10_MEAN, CIFAR10_STD),
            )

        return Splits(
            self.name, part(official, train), part(official, held_out), part(test, np.arange(len(test[1])), first_id=n)
        )


def _check_labels(path: Path, labels: NDArray[np.integer]) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if len(wrong):
        raise DataError(f"{path} has label {labels[wrong[0]]} in record {wrong[0]}; labels go from 0 to 9")
