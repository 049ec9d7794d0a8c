"""CelebA with hair colour as the class and gender as the spurious attribute, from its csv or original text files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import register
from holdfast.data.examples import Splits
from holdfast.data.readers.folder import FINE_TUNED_RESNET50, PublishedImages, lazy_splits
from holdfast.data.readers.images import ImageReader
from holdfast.data.readers.tables import read_columns, split_codes
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError, nearest

CELEBA_COUNTS = {
    "train": (71629, 66874, 22880, 1387),
    "validation": (8535, 8276, 2874, 182),
    "test": (9767, 7535, 2480, 180),
}


def read_attributes(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[np.object_]]:
    """Read image names and some attributes from list_attr_celeba, csv or the original txt.

    Args:
        path: the file. The txt form has a count, a line of names, then lines of an image and a value per name.
        names: the attributes that are wanted.

    Returns:
        ``image_id`` and the attributes, each an array of strings.

    Raises:
        DataError: if the file is damaged or lacks an attribute.
    """
    if path.suffix == ".csv":
        return read_columns(path, ("image_id", *names))
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[1].split() if len(lines) > 1 else []
    for name in names:
        if name not in header:
            raise DataError(f"{path} has no attribute {name!r}{nearest(name, header)}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    for number, row in enumerate(rows, start=3):
        if len(row) != len(header) + 1:
            raise DataError(f"line {number} of {path} has {len(row)} words instead of {len(header) + 1}; it is damaged")
    if not rows:
        raise DataError(f"{path} has no rows")
    wanted = {"image_id": 0} | {name: header.index(name) + 1 for name in names}
    return {name: np.array([row[at] for row in rows], object) for name, at in wanted.items()}


#: Which attributes each face has, as published; Kaggle has it as a csv file, of which no sum is known.
LIST_ATTRIBUTES = RemoteFile(
    "celeba/list_attr_celeba.txt",
    sha256="f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
    size=26_721_026,
    also=("celeba/list_attr_celeba.csv",),
)


@register
@dataclass(frozen=True)
class CelebA(PublishedImages):
    """Faces: blond or dark hair, which goes with gender in training.

    Attributes:
        size: side of the square that the model gets.
        check_counts: refuse data whose group sizes aren't the published ones.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "celeba"
    summary = "202,599 faces, blond or dark hair, 2 classes, 4 groups with gender"
    files = (
        LIST_ATTRIBUTES,
        RemoteFile(
            "celeba/list_eval_partition.txt",
            sha256="fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
            size=2_836_386,
            also=("celeba/list_eval_partition.csv",),
        ),
        RemoteFile("celeba/img_align_celeba"),
    )
    by_hand = (
        "agree to the licence at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and put list_attr_celeba.txt (or "
        ".csv), list_eval_partition.txt (or .csv) and the folder img_align_celeba into celeba/"
    )
    recipe: ClassVar[Any] = {**FINE_TUNED_RESNET50, "epochs": 50, "learning_rate": 1e-5, "weight_decay": 1.0}
    published = CELEBA_COUNTS

    def read(self, root: Path) -> Splits:
        """Read attributes and partition; the images are opened when they are gathered."""
        where = self.locate(root, "celeba/list_attr_celeba.csv", "celeba/list_attr_celeba.txt")
        partition = self.locate(root, "celeba/list_eval_partition.csv", "celeba/list_eval_partition.txt")
        table = read_attributes(where, ("Blond_Hair", "Male"))
        codes = split_codes(partition, "partition", _partition_of(partition, table["image_id"]))
        images = root / "celeba" / "img_align_celeba"
        return lazy_splits(
            self.name,
            [images / image for image in table["image_id"]],
            ImageReader(crop_first=178, resize=self.size, crop=None),
            labels=signs(where, "Blond_Hair", table),
            attributes=signs(where, "Male", table),
            codes=codes,
            class_names=("dark", "blond"),
            attribute_names=("female", "male"),
            workers=self.workers,
        )


def signs(path: Path, name: str, table: dict[str, NDArray[np.object_]]) -> NDArray[np.int64]:
    """An attribute of `read_attributes` as 0 and 1."""
    codes = {"-1": 0, "0": 0, "1": 1}
    words, inverse = np.unique(table[name].astype(str), return_inverse=True)
    values: NDArray[np.int64] = np.array([codes.get(word.strip(), -1) for word in words], np.int64)[inverse]
    wrong = np.flatnonzero(values < 0)
    if len(wrong):
        at = int(wrong[0])
        raise DataError(f"{path} has {table[name][at]!r} as {name} of {table['image_id'][at]}; it must be 1 or -1")
    return values


def _partition_of(path: Path, images: NDArray[np.object_]) -> NDArray[np.object_]:
    """The split of each image, whatever the order in which the partition file lists them."""
    if path.suffix == ".csv":
        table = read_columns(path, ("image_id", "partition"))
        known = dict(zip(table["image_id"], table["partition"], strict=True))
    else:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if any(len(row) != 2 for row in rows):
            raise DataError(f"{path} must have an image and its split on every line")
        known = {row[0]: row[1] for row in rows}
    for image in images:
        if image not in known:
            raise DataError(f"{path} has no split for {image}, which the attribute file lists")
    return np.array([known[image] for image in images], object)
