"""Your own arrays, as runs before `holdfast.data.own` named them: a NumPy ``.npz`` file with inputs and labels.

It stays beside `holdfast.data.own.arrays`, whose safe reading it uses, since a run is resumed and judged on the rows it
was trained on: the split here is drawn over all rows by a stream of its own, there by group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.own.arrays import plain_arrays
from holdfast.data.readers.tables import split_codes
from holdfast.data.splitting import split_at_random
from holdfast.data.transforms import ScalePixels
from holdfast.errors import DataError, nearest
from holdfast.streams import data_stream

KEYS = ("inputs", "labels", "attributes", "groups", "split")


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file; pickled objects are refused, so nothing in the file can run.

    Args:
        path: the file.

    Returns:
        The arrays by name: `inputs` and `labels`, and those of `attributes`, `groups` and `split` that are there.

    Raises:
        DataError: if the file is damaged, lacks or has an unknown array, or the arrays' lengths differ.
    """
    arrays = plain_arrays(path)
    for name in arrays:
        if name not in KEYS:
            raise DataError(f"{path} has an unknown array {name!r}{nearest(name, KEYS)}")
    for name in ("inputs", "labels"):
        if name not in arrays:
            raise DataError(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    n = arrays["inputs"].shape[:1]
    for name, array in arrays.items():
        if array.ndim == 0 or array.shape[:1] != n:
            raise DataError(
                f"{name} in {path} have shape {array.shape}, inputs {arrays['inputs'].shape}; give one per input"
            )
    return arrays


@register
@dataclass(frozen=True)
class Arrays(DataSet):
    """Your own arrays in an npz file: inputs and labels; attributes, groups and split are optional.

    Attributes:
        path: the file. `split` in it is 0, 1, 2 or train, val, test; without it the split is drawn at random.
        validation: share of the examples for validation, where the file has no split.
        test: share of the examples for the test, where the file has no split.
        seed: decides that split.
    """

    name = "arrays"
    summary = "your own arrays, as older runs name them: give the path of the npz file instead"
    recipe: ClassVar[Any] = {"model": "mlp"}

    path: Path
    validation: float = 0.15
    test: float = 0.15
    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Read the file; uint8 inputs are scaled to 0..1 when gathered, other numbers are kept as float32."""
        path = Path(self.path).expanduser()
        arrays = read_npz(path)
        inputs = torch.from_numpy(arrays["inputs"])
        pixels = inputs.dtype == torch.uint8
        if not pixels:
            inputs = inputs.to(torch.float32)
        whole = Examples.of(
            inputs,
            arrays["labels"],
            attributes=arrays.get("attributes"),
            groups=arrays.get("groups"),
            transform=ScalePixels() if pixels else None,
        )
        train, validation, test = (whole.subset(rows) for rows in self._rows(path, arrays))
        return Splits(self.name, train, validation, test)

    def _rows(self, path: Path, arrays: dict[str, NDArray[Any]]) -> list[NDArray[np.int64]]:
        if "split" in arrays:
            codes = split_codes(path, "split", arrays["split"])
            return [np.flatnonzero(codes == code) for code in range(3)]
        n = len(arrays["labels"])
        sizes = round(self.validation * n), round(self.test * n)
        validation, test, train = split_at_random(n, sizes, data_stream(self.seed, "arrays"))
        return [train, validation, test]
