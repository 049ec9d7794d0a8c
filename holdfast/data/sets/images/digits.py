"""The 1,797 handwritten digits that come with scikit-learn: real data that needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.splitting import split_at_random
from holdfast.streams import data_stream

#: How many of the digits are for training and for validation; the remaining 397 are for the test.
SIZES = (1100, 300)


def bundled_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images, float32 in 0..1 of shape (1797, 8, 8), and digits, int64.

    The table is read where scikit-learn keeps it: importing scikit-learn takes two seconds, and every node of a
    federation would take them. Where the table lies elsewhere, scikit-learn is asked.
    """
    package = find_spec("sklearn")
    places = [] if package is None else package.submodule_search_locations or []
    files = [file for place in places if (file := Path(place) / "datasets" / "data" / "digits.csv.gz").is_file()]
    if files:
        table = np.loadtxt(files[0], delimiter=",", dtype=np.int64)
        pixels, digits = table[:, :-1].reshape(-1, 8, 8), table[:, -1].copy()
    else:
        from sklearn.datasets import load_digits  # noqa: PLC0415

        bunch = load_digits()
        pixels, digits = bunch.images, bunch.target.astype(np.int64)
    return (pixels / 16).astype(np.float32), digits


def digit_parts(n: int, seed: int) -> list[NDArray[np.int64]]:
    """Positions for training, validation and test; sets that share `seed` share the split."""
    return split_at_random(n, SIZES, data_stream(seed, "digits"))


@register
@dataclass(frozen=True)
class Digits(DataSet):
    """Handwritten digits, 8x8, bundled with scikit-learn.

    Attributes:
        seed: decides which 1,100 are for training, 300 for validation and 397 for the test.
    """

    name = "digits"
    summary = "1,797 handwritten digits, 8x8 grey, 10 classes; bundled, no download"
    recipe: ClassVar[Any] = {"model": "mlp", "threads": 1}

    seed: int = 0

    def load(self, root: Path) -> Splits:
        """Split the bundled digits; `root` isn't looked at."""
        images, digits = bundled_digits()
        train, validation, test = (
            Examples.of(images[rows, None], digits[rows], ids=rows, class_names=[str(digit) for digit in range(10)])
            for rows in digit_parts(len(digits), self.seed)
        )
        return Splits(self.name, train, validation, test)
