"""Images in a folder with a metadata.csv, in the convention of WILDS and group DRO, and the data sets that come so.

The csv says for every image its path, label, split and spurious attribute. Labels and groups are there at once; an
image is opened only when it is gathered, so partitions can be studied without any image on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, describe, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import LazyInputs
from holdfast.data.readers.images import ImageReader
from holdfast.data.readers.tables import read_columns, split_codes, whole_numbers
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetadataColumns:
    """Which column of metadata.csv says what.

    Attributes:
        path: the image's path, relative to the folder.
        label: the class, an integer from 0.
        split: the part: 0, 1, 2 or train, val, test.
        attribute: the spurious attribute, an integer from 0; None where it is unknown.
    """

    path: str = "img_filename"
    label: str = "y"
    split: str = "split"
    attribute: str | None = "place"


class ImageLoader(Protocol):
    """Anything that turns image files into inputs."""

    def inputs(self, paths: Sequence[Path], workers: int) -> LazyInputs:
        """The images at `paths`, read when gathered by `workers` threads."""
        ...


def waterbirds_reader(size: int) -> ImageReader:
    """Resize to a square, then keep the middle 7/8: 256 and 224 for the usual size."""
    return ImageReader(resize=round(size * 256 / 224), crop=size)


def read_folder(
    name: str,
    folder: Path,
    columns: MetadataColumns,
    reader: ImageLoader,
    *,
    class_names: Sequence[str] = (),
    attribute_names: Sequence[str] = (),
    workers: int = 0,
) -> Splits:
    """Read a folder of images that is described by its metadata.csv.

    Args:
        name: what the data set is called.
        folder: has ``metadata.csv`` and the images.
        columns: which column says what.
        reader: turns an image file into a tensor.
        class_names: a name per class; ``y0, y1, ...`` where omitted.
        attribute_names: a name per attribute value; ``a0, a1, ...`` where omitted.
        workers: threads that decode images.

    Returns:
        The three parts; an example's id is its row in the csv, from 0.

    Raises:
        DataError: if the csv lacks a column or has a value that makes no sense, or a part is empty.
    """
    path = folder / "metadata.csv"
    wanted = [columns.path, columns.label, columns.split] + ([columns.attribute] if columns.attribute else [])
    table = read_columns(path, wanted)
    labels = whole_numbers(path, columns.label, table[columns.label], class_names)
    attributes = None
    if columns.attribute:
        attributes = whole_numbers(path, columns.attribute, table[columns.attribute], attribute_names)
    return lazy_splits(
        name,
        [folder / file for file in table[columns.path]],
        reader,
        labels=labels,
        attributes=attributes,
        codes=split_codes(path, columns.split, table[columns.split]),
        class_names=class_names,
        attribute_names=attribute_names,
        workers=workers,
    )


def lazy_splits(
    name: str,
    paths: Sequence[Path],
    reader: ImageLoader,
    *,
    labels: NDArray[np.int64],
    attributes: NDArray[np.int64] | None,
    codes: NDArray[np.int64],
    class_names: Sequence[str] = (),
    attribute_names: Sequence[str] = (),
    workers: int = 0,
) -> Splits:
    """Splits of images that are read when gathered; every part knows all classes and groups of the whole.

    A (label, attribute) cell that training lacks is allowed and logged, see `describe`.

    Args:
        name: what the data set is called.
        paths: an image file per example.
        reader: turns an image file into a tensor.
        labels: int64 of shape (n,).
        attributes: int64 of shape (n,), or None.
        codes: 0 for training, 1 for validation, 2 for test, of shape (n,).
        class_names: a name per class.
        attribute_names: a name per attribute value.
        workers: threads that decode images.

    Returns:
        The three parts, with positions in `paths` as ids.
    """
    classes = class_names or [f"y{label}" for label in range(labels.max() + 1)]
    values: Sequence[str] | None = None
    if attributes is not None:
        values = attribute_names or [f"a{value}" for value in range(attributes.max() + 1)]

    def part(code: int) -> Examples:
        rows = np.flatnonzero(codes == code)
        return Examples.of(
            reader.inputs([paths[int(row)] for row in rows], workers),
            labels[rows],
            attributes=None if attributes is None else attributes[rows],
            ids=rows,
            class_names=classes,
            attribute_names=values,
        )

    splits = Splits(name, part(0), part(1), part(2))
    empty = [group for group, count in describe(splits)["train"].items() if count == 0]
    if empty:
        logger.warning("data set %r has no training example of %s", name, ", ".join(empty))
    return splits


def check_group_counts(splits: Splits, published: Mapping[str, Sequence[int]]) -> None:
    """Compare the size of every group with the published one.

    Raises:
        DataError: if they differ; the message names the first group that does.
    """
    for part, counts in describe(splits).items():
        for (group, count), expected in zip(counts.items(), published[part], strict=True):
            if count != expected:
                raise DataError(
                    f"{splits.name} has {count} {part} examples of {group}, published are {expected}; fetch it again, "
                    "or set check_counts to False if the difference is intended"
                )


#: How published work fine-tunes a ResNet-50 on such images (SPARE, Table 9.7), but for what differs from set to set.
FINE_TUNED_RESNET50: dict[str, Any] = {
    "model": "resnet50",
    "epochs": 300,
    "batch_size": 128,
    "learning_rate": 1e-4,
    "weight_decay": 1e-1,
    "momentum": 0.9,
    "optimizer": "sgd",
    "augment": "flip",
    "weights": "imagenet",
}


@dataclass(frozen=True)
class PublishedImages(DataSet):
    """Images of a benchmark: read when they are gathered, and checked against the published sizes of their groups.

    Attributes:
        size: side of the square that the model gets.
        check_counts: refuse data whose group sizes aren't the published ones.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    published: ClassVar[Mapping[str, Sequence[int]]]

    size: int = 224
    check_counts: bool = True
    workers: int = 2

    def load(self, root: Path) -> Splits:
        """List the images under `root`, and count their groups unless that is turned off."""
        splits = self.read(root)
        if self.check_counts:
            check_group_counts(splits, self.published)
        return splits

    def read(self, root: Path) -> Splits:
        """The splits, whatever their sizes are."""
        raise NotImplementedError


@register
@dataclass(frozen=True)
class Folder(DataSet):
    """Your own images, as runs before `holdfast.data.own` named them: a folder with a metadata.csv.

    It is `read_folder`, which Waterbirds and its like need anyway, under a name; images are cut to the middle 7/8, so
    that such a run is judged on the pixels it was trained on.

    Attributes:
        path: the folder.
        columns: which column of metadata.csv says what.
        size: side of the square that the model gets.
        class_names: a name per class; labels past the last one are refused.
        attribute_names: a name per attribute value.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "folder"
    summary = "your own images, as older runs name them: give the path of the folder instead"
    recipe: ClassVar[Any] = {"model": "resnet18", "augment": "flip"}

    path: Path
    columns: MetadataColumns = field(default_factory=MetadataColumns)
    size: int = 224
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    workers: int = 2

    def load(self, root: Path) -> Splits:
        """Read metadata.csv; `root` isn't looked at."""
        return read_folder(
            self.name,
            Path(self.path).expanduser(),
            self.columns,
            waterbirds_reader(self.size),
            class_names=self.class_names,
            attribute_names=self.attribute_names,
            workers=self.workers,
        )


WATERBIRDS_COUNTS = {
    "train": (3498, 184, 56, 1057),
    "validation": (467, 466, 133, 133),
    "test": (2255, 2255, 642, 642),
}


@register
@dataclass(frozen=True)
class Waterbirds(PublishedImages):
    """Birds pasted on land or water backgrounds, which agree with the bird in 95 % of training.

    Attributes:
        size: side of the square that the model gets.
        check_counts: refuse data whose group sizes aren't the published ones.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "waterbirds"
    summary = "11,788 birds on land and water backgrounds, 2 classes, 4 groups"
    files = (
        RemoteFile(
            "waterbird_complete95_forest2water2.tar.gz",
            "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz",
            unpacks_to="waterbird_complete95_forest2water2",
            also=("waterbirds_v1.0",),
            mirrors=("https://downloads.cs.stanford.edu/nlp/data/dro/waterbird_complete95_forest2water2.tar.gz",),
            unchecked="its publisher gives no sum; the sizes of its groups are checked when it is read",
        ),
    )
    recipe: ClassVar[Any] = FINE_TUNED_RESNET50
    published = WATERBIRDS_COUNTS

    def read(self, root: Path) -> Splits:
        """Read metadata.csv, from the authors' tarball or from WILDS' packaging of it."""
        folders = ("waterbird_complete95_forest2water2", "waterbirds_v1.0")
        return read_folder(
            self.name,
            self.locate(root, *(f"{folder}/metadata.csv" for folder in folders)).parent,
            MetadataColumns(),
            waterbirds_reader(self.size),
            class_names=("landbird", "waterbird"),
            attribute_names=("land", "water"),
            workers=self.workers,
        )
