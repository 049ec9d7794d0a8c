"""What lies at a place before anybody has said what its columns mean: rows, and the layout's own hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.own.values import Coded, coded_words, numbers_of

#: Names that a part of the data may have, in a split column, as a folder or as a file, and the part's number.
PARTS: Mapping[str, int] = {
    "train": 0, "training": 0, "0": 0,
    "val": 1, "valid": 1, "validation": 1, "dev": 1, "1": 1,
    "test": 2, "testing": 2, "eval": 2, "evaluation": 2, "2": 2,
}  # fmt: skip
PART_NAMES = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Source:
    """Rows as they were found.

    Attributes:
        place: what the user named, for messages.
        table: a row per example.
        folder: what image paths are relative to.
        inputs: the inputs themselves, where they are an array and not columns, shape (rows, ...).
        parts: the part of each row by the place's own layout (folders or files called train, test): 0, 1, 2, or -1.
        roles: what the layout says about columns: ``{"image": "image", "label": "label"}``.
        notes: what was left out or changed when it was read, a line each.
        has_images: whether the rows are a table that lies in a folder of images.
        sample: whether these are only the first rows, read to see what there is.
    """

    place: str
    table: pa.Table
    folder: Path | None = None
    inputs: NDArray[Any] | None = None
    parts: NDArray[np.int64] | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_images: bool = False
    sample: bool = False
    _numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)
    _words: dict[str, Coded] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return int(self.table.num_rows) if self.inputs is None else len(self.inputs)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.table.column_names]

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A column as float64, made once: it is measured first and scaled later; see `numbers_of`."""
        if column not in self._numbers:
            self._numbers[column] = numbers_of(self.table[column], column, self.place)
        return self._numbers[column]

    def words(self, column: str) -> Coded:
        """A column as numbers of words, made once; see `coded_words`."""
        if column not in self._words:
            self._words[column] = coded_words(self.table[column])
        return self._words[column]
