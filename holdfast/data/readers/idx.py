"""MNIST and Fashion-MNIST: the idx format, in torchvision's folder layout, compressed or not.

The 60,000 official training images are split at random into training and validation; the official test set stays.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.download import RemoteFile
from holdfast.data.examples import Examples, Splits
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
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}); remove it and fetch it again") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]):
        raise DataError(
            f"{path} starts with {content[:4].hex(' ') or 'nothing'}; an idx file of bytes with {dimensions} "
            f"dimensions starts with 00 00 08 {dimensions:02x}"
        )
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    if len(content) != header + math.prod(shape):
        raise DataError(
            f"{path} has {len(content)} bytes and its header promises {header + math.prod(shape)}; it is truncated or "
            "damaged: remove it and fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _remote(folder: str, base: str, sums: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{folder}/{name}.gz", f"{base}/{name}.gz", md5=md5, also=(f"{folder}/{name}",))
        for name, md5 in sums.items()
    )


MNIST_FILES = _remote(
    "MNIST/raw",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)

FASHION_MNIST_FILES = _remote(
    "FashionMNIST/raw",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
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
    recipe: ClassVar = {"model": "lenet5"}
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
