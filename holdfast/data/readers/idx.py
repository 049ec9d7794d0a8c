"""MNIST and Fashion-MNIST: the idx format, in torchvision's folder layout, compressed or not.

The 60,000 official training images are split at random into training and validation; the official test set stays.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.remote_files import RemoteFile
from holdfast.data.splitting import split_at_random
from holdfast.data.transforms import ScalePixels
from holdfast.errors import DataError
from holdfast.streams import data_stream

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes.

    Args:
        path: the file; one that ends in ``.gz`` is decompressed.
        dimensions: how many dimensions it must have, 3 for images and 1 for labels.

    Returns:
        The array, writable.

    Raises:
        DataError: if the file is missing, truncated, or something else.
    """
    from holdfast.data.archives import read_gzip  # noqa: PLC0415 - help pages show data sets and read none

    header = 4 + 4 * dimensions

    def promised(start: bytes) -> int:
        return header + math.prod(_shape(start))

    try:
        content = read_gzip(path, header, promised) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}); remove it and fetch it again") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]):
        raise DataError(
            f"{path} starts with {content[:4].hex(' ') or 'nothing'}; an idx file of bytes with {dimensions} "
            f"dimensions starts with 00 00 08 {dimensions:02x}"
        )
    wanted = promised(content[:header])
    if len(content) != wanted:
        more = "at least " if len(content) > wanted else ""  # a gzip file is read no further
        raise DataError(
            f"{path} has {more}{len(content)} bytes and its header promises {wanted}; it is truncated or damaged: "
            "remove it and fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(_shape(content[:header])).copy()


def _shape(header: bytes) -> list[int]:
    """The sizes that an idx file's header states, after the four bytes that say what it is."""
    return [int.from_bytes(header[at : at + 4], "big") for at in range(4, len(header), 4)]


def _remote(folder: str, bases: tuple[str, ...], sums: dict[str, tuple[int, str, str]]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            f"{folder}/{name}.gz",
            f"{bases[0]}/{name}.gz",
            sha256=sha256,
            size=size,
            content_md5=content,
            also=(f"{folder}/{name}",),
            mirrors=tuple(f"{base}/{name}.gz" for base in bases[1:]),
        )
        for name, (size, sha256, content) in sums.items()
    )


MNIST_FILES = _remote(
    "MNIST/raw",
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
    {
        "train-images-idx3-ubyte": (
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        "train-labels-idx1-ubyte": (
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "a25bea736e30d166cdddb491f175f624",
        ),
        "t10k-images-idx3-ubyte": (
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "2646ac647ad5339dbf082846283269ea",
        ),
        "t10k-labels-idx1-ubyte": (
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    },
)

FASHION_MNIST_FILES = _remote(
    "FashionMNIST/raw",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    ),
    {
        "train-images-idx3-ubyte": (
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        ),
        "train-labels-idx1-ubyte": (
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "9018921c3c673c538a1fc5bad174d6f9",
        ),
        "t10k-images-idx3-ubyte": (
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "8181f5470baa50b63fa0f6fddb340f0a",
        ),
        "t10k-labels-idx1-ubyte": (
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    },
)


@dataclass(frozen=True)
class Digits28:
    """Images and digits as read from the idx files, before they are split.

    Attributes:
        images: uint8 of shape (n, 28, 28), the official training images first, then the test images.
        labels: uint8 of shape (n,).
        n_train: how many of them are official training images.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    n_train: int


def read_digits(cls: type[DataSet], root: Path) -> Digits28:
    """Read the four files of `cls`, in the order images, labels, test images, test labels."""
    paths = [cls.locate(root, file.path, *file.also) for file in cls.files]
    parts = [(read_idx(images, 3), read_idx(labels, 1)) for images, labels in zip(paths[::2], paths[1::2], strict=True)]
    for (images, labels), path in zip(parts, paths[1::2], strict=True):
        if len(images) != len(labels):
            raise DataError(f"{path} has {len(labels)} labels for {len(images)} images; fetch both files again")
        if len(labels) and labels.max() > 9:
            raise DataError(f"{path} has label {labels.max()} at position {labels.argmax()}; labels go from 0 to 9")
    return Digits28(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), len(parts[0][1]))


@register
@dataclass(frozen=True)
class Mnist(DataSet):
    """Handwritten digits, 28x28.

    Attributes:
        validation: how many of the official training images are held out for validation.
        seed: decides which.
    """

    name = "mnist"
    summary = "70,000 handwritten digits, 28x28 grey, 10 classes"
    files = MNIST_FILES
    recipe: ClassVar[Any] = {"model": "lenet5"}
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))

    validation: int = 10_000
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Read, split and wrap the images, which stay uint8 in memory."""
        digits = read_digits(type(self), root)
        train, held_out = split_validation(digits.n_train, self.validation, self.seed)
        images, labels = torch.from_numpy(digits.images).unsqueeze(1), digits.labels

        def part(rows: NDArray[np.int64]) -> Examples:
            return Examples.of(
                images[torch.from_numpy(rows)],
                labels[rows],
                ids=rows,
                class_names=self.class_names,
                transform=ScalePixels(),
            )

        return Splits(self.name, part(train), part(held_out), part(np.arange(digits.n_train, len(labels))))


@register
@dataclass(frozen=True)
class FashionMnist(Mnist):
    """Clothes, 28x28: the layout of MNIST with harder classes.

    Attributes:
        validation: how many of the official training images are held out for validation.
        seed: decides which.
    """

    name = "fashion-mnist"
    summary = "70,000 pieces of clothing, 28x28 grey, 10 classes"
    files = FASHION_MNIST_FILES
    class_names = (
        "t-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    )


def split_validation(n: int, validation: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions for training and for validation; sets that share `seed` and sizes share the split."""
    held_out, train = split_at_random(n, (validation,), data_stream(seed, "validation"))
    return train, held_out
