"""How often each class was predicted in each group, kept by its cells that are not empty.

A table of groups by classes has a hundred million cells where there are ten thousand of each; no more of them are
filled than there are examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]

#: Cells up to which a stored table is written out in full.
_WRITTEN_OUT = 10_000


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class was predicted in each group.

    Attributes:
        shape: number of groups and of classes.
        rows: group of each cell that is not empty, ascending.
        columns: its class, ascending within a group.
        counts: how often that class was predicted in that group.
    """

    shape: tuple[int, int]
    rows: _Ints
    columns: _Ints
    counts: _Ints

    @classmethod
    def of(cls, groups: _Ints, predicted: _Ints, shape: tuple[int, int]) -> Confusion:
        """Count pairs of a group and a predicted class, (n,) each."""
        cells, counts = np.unique(groups * shape[1] + predicted, return_counts=True)
        return cls(shape, *np.divmod(cells, shape[1]), counts.astype(np.int64))

    @classmethod
    def empty(cls) -> Confusion:
        """Of a report that keeps none."""
        nothing = np.zeros(0, np.int64)
        return cls((0, 0), nothing, nothing, nothing)

    def __eq__(self, other: object) -> bool:
        """Whether all cells are the same."""
        return isinstance(other, Confusion) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def dense(self) -> _Ints:
        """The whole table, (groups, classes)."""
        table = np.zeros(self.shape, np.int64)
        table[self.rows, self.columns] = self.counts
        return table

    def row(self, group: int) -> dict[int, int]:
        """Counts of a group by class, those that are not zero."""
        low, high = np.searchsorted(self.rows, [group, group + 1])
        return dict(zip(self.columns[low:high].tolist(), self.counts[low:high].tolist(), strict=True))

    def to_json(self) -> Any:
        """The table as plain values: row by row where it is small, else its cells."""
        if self.shape[0] * self.shape[1] <= _WRITTEN_OUT:
            return self.dense().tolist()
        cells = zip(self.rows.tolist(), self.columns.tolist(), self.counts.tolist(), strict=True)
        return {"shape": list(self.shape), "cells": [list(cell) for cell in cells]}

    @classmethod
    def from_json(cls, stored: Any, shape: tuple[int, int]) -> Confusion:
        """What `to_json` gave.

        Args:
            stored: the table.
            shape: number of groups and of classes, which it must have.

        Raises:
            ValueError: if it is of other groups or classes, or its counts are none.
        """
        if isinstance(stored, Mapping):
            cells = np.array(stored["cells"], np.int64).reshape(-1, 3)
            table = cls(tuple(stored["shape"]), *np.ascontiguousarray(cells.T))
        else:
            dense = np.array(stored, np.int64).reshape(len(stored), -1 if len(stored) else shape[1])
            rows, columns = np.nonzero(dense)
            table = cls(dense.shape, rows, columns, dense[rows, columns])  # type: ignore[arg-type]
        low, high = (np.array(pair) for pair in ((0, 0), shape))
        places = np.stack([table.rows, table.columns])
        if table.shape != shape or (places < low[:, None]).any() or (places >= high[:, None]).any():
            raise ValueError(f"its table of predictions has shape {table.shape} and not {shape}")
        if (table.counts < 0).any():
            raise ValueError("a count in its table of predictions is negative")
        return table
