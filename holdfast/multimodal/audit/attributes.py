"""Which visible things each image shows, the words to look for, and a detected word as the attribute of examples.

The table may come from an open-vocabulary detector (`holdfast.multimodal.audit.detectors`), from annotations, or from
any other column, such as the camera: no detector sees light, blur or an angle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.examples import Examples
from holdfast.errors import DataError, nearest

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Attributes:
    """Which attributes each image shows.

    Attributes:
        words: a name per attribute.
        present: bool of shape (images, words).
    """

    words: tuple[str, ...]
    present: _Bools

    def __post_init__(self) -> None:
        if self.present.ndim != 2 or self.present.shape[1] != len(self.words):
            raise DataError(
                f"there are {len(self.words)} words and a table of shape {self.present.shape}; "
                "give a row per image and a column per word"
            )
        if len(set(self.words)) != len(self.words):
            repeated = next(word for word in self.words if self.words.count(word) > 1)
            raise DataError(f"the word {repeated!r} has two columns; give each word one")

    def with_column(self, word: str, present: Sequence[bool] | _Bools) -> Attributes:
        """The same with one more attribute, such as a column of metadata that no detector could see."""
        column = np.asarray(present, np.bool_)
        if column.shape != (len(self.present),):
            raise DataError(f"{word!r} has shape {column.shape} for {len(self.present)} images; give a value for each")
        return replace(self, words=(*self.words, word), present=np.column_stack([self.present, column]))

    def column(self, word: str) -> _Ints:
        """Which images show `word`, 0 or 1, int64 of shape (images,)."""
        if word not in self.words:
            raise DataError(f"no detector was run for {word!r}" + nearest(word, self.words))
        return self.present[:, self.words.index(word)].astype(np.int64)


def label_attribute(examples: Examples, attributes: Attributes, word: str) -> Examples:
    """The same examples with a detected word as their spurious attribute, where nobody has labelled one.

    Args:
        examples: the images that the table is of, in the same order.
        attributes: what they show.
        word: which attribute; a person has called it spurious.

    Returns:
        The examples with attribute 1 where the word was seen and 0 elsewhere, and groups class x attribute.

    Raises:
        DataError: if there are other images, or no detector was run for the word.
    """
    shown = torch.from_numpy(attributes.column(word))
    if len(shown) != len(examples):
        raise DataError(
            f"the table is of {len(shown)} images and there are {len(examples)} examples; give one row for each"
        )
    values = (f"no {word}", word)
    names = [f"{name}/{value}" for name in examples.class_names for value in values]
    grouped = examples.with_groups(examples.labels * 2 + shown, names)
    return replace(grouped, attributes=shown, attribute_names=values)


def vocabulary(synsets: Iterable[str], class_names: Iterable[str]) -> tuple[str, ...]:
    """Words to look for: lemmas without repeats, in order, and without those that name a class.

    Args:
        synsets: names such as ``water_bottle.n.01``, or plain words.
        class_names: names of the classes; several synonyms may be given, divided by commas.

    Returns:
        The words. Synonyms of a class that it doesn't list stay in: name them in the report.
    """
    taken = {_lemma(name) for names in class_names for name in names.split(",")}
    return tuple(sorted({_lemma(synset.partition(".")[0]) for synset in synsets} - taken - {""}))


def _lemma(word: str) -> str:
    return " ".join(word.replace("_", " ").lower().split())
