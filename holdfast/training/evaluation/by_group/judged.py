"""What is judged: true values beside what a model, anybody's, said of each example.

Three kinds of predictions are told apart: classes alone, classes with a probability each, and quantities. Everything is
checked here once, so metrics can be plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: What a model predicts.
Task = Literal["classes", "quantities"]

_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Judged:
    """Examples with their truth and what was predicted of them.

    Attributes:
        task: ``"classes"`` or ``"quantities"``.
        truth: the class's number, int64, or the true quantity, float64, of shape (n,).
        predicted: the same of the prediction.
        weights: what each example counts, float64 of shape (n,).
        probabilities: of each class, (n, classes), where they are known.
        class_names: a name per class, empty for quantities.
        positive: number of the class whose recall, precision and rates are meant where there are two.
    """

    task: Task
    truth: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    weights: Floats
    probabilities: Floats | None = None
    class_names: tuple[str, ...] = ()
    positive: int = 1

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def binary(self) -> bool:
        """Whether there are two classes."""
        return len(self.class_names) == 2

    @cached_property
    def weighted(self) -> bool:
        """Whether examples count differently, so that counts are no trials."""
        return bool((self.weights != 1).any())

    def take(self, rows: Ints) -> Judged:
        """The examples at `rows`."""
        return Judged(
            self.task,
            self.truth[rows],
            self.predicted[rows],
            self.weights[rows],
            None if self.probabilities is None else self.probabilities[rows],
            self.class_names,
            self.positive,
        )


def judged_quantities(truth: Any, predicted: Any, weights: Any = None) -> Judged:
    """Predicted quantities, such as prices.

    Raises:
        DataError: if lengths disagree or a value is missing or not finite.
    """
    y = _numbers("true values", truth)
    return Judged("quantities", y, _numbers("predictions", predicted, len(y)), _weights(weights, len(y)))


def judged_classes(
    truth: Any,
    predicted: Any = None,
    probabilities: Any = None,
    *,
    weights: Any = None,
    class_names: Sequence[str] | None = None,
    positive: str | None = None,
) -> Judged:
    """Predicted classes, their probabilities, or both.

    Args:
        truth: the class of each example, words or whole numbers, (n,).
        predicted: the predicted class; the most likely one by default (of two classes, the positive from 0.5 on).
        probabilities: (n,) of the positive of two classes, or (n, classes) in the order of `class_names`.
        weights: what each example counts; 1 by default.
        class_names: the classes; by default all that occur, numbers by size and words by the alphabet.
        positive: of two classes the one that is looked for; the last by default.

    Raises:
        DataError: if lengths disagree, a value is missing, or probabilities are none.
    """
    y = _words("labels", truth)
    said = None if predicted is None else _words("predictions", predicted, len(y))
    names = list(map(str, class_names)) if class_names is not None else _ordered({*y, *(said or ())})
    if class_names is None and len(names) == 1 and probabilities is not None:
        raise DataError(
            f"there is one class only, {names[0]!r}, so a probability says nothing; name both with class_names"
        )
    numbers = {name: place for place, name in enumerate(names)}
    if positive is not None and str(positive) not in numbers:
        raise DataError(f"there is no class {positive!r} to be the positive one; there are {some(names, 8)}")
    where = len(names) - 1 if positive is None else numbers[str(positive)]
    shares = None if probabilities is None else _probabilities(probabilities, len(y), len(names), where)
    if said is not None:
        guesses = _coded(said, numbers, "predictions")
    elif shares is None:
        raise DataError("there is nothing to judge; give predicted classes, probabilities or both")
    elif len(names) == 2:
        guesses = np.where(shares[:, where] >= 0.5, where, 1 - where).astype(np.int64)
    else:
        guesses = shares.argmax(1).astype(np.int64)
    return Judged(
        "classes", _coded(y, numbers, "labels"), guesses, _weights(weights, len(y)), shares, tuple(names), where
    )


def _probabilities(values: Any, rows: int, classes: int, positive: int) -> Floats:
    shares = np.asarray(values, dtype=np.float64)
    if shares.ndim == 1 and classes == 2:
        both = np.empty((len(shares), 2))
        both[:, positive], both[:, 1 - positive] = shares, 1 - shares
        shares = both
    if shares.shape != (rows, classes):
        raise DataError(
            f"probabilities have shape {shares.shape} for {rows} examples of {classes} classes; give a column per "
            "class, or one of the positive of two classes"
        )
    if not np.isfinite(shares).all() or (shares < 0).any() or (shares > 1).any():
        raise DataError("probabilities are outside of [0, 1] or missing; give probabilities, not logits")
    sums = shares.sum(1)
    if (abs(sums - 1) > _SUM_TOLERANCE).any():
        row = int(abs(sums - 1).argmax())
        raise DataError(
            f"the probabilities of example {row + 1} add up to {sums[row]:.4g}; give one per class that add up to 1"
        )
    return np.asarray(shares / sums[:, None])


def _words(what: str, values: Any, n: int | None = None) -> list[str]:
    array = np.asarray(values)
    if array.ndim != 1 or (n is not None and len(array) != n):
        wanted = "one class per example" if n is None else f"one class for each of {n} examples"
        raise DataError(f"{what} have shape {array.shape}; give {wanted}")
    if not len(array):
        raise DataError("there are no examples to judge; give at least one")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or (array != np.round(array)).any():
            raise DataError(f"{what} hold fractions or gaps and so no classes; give classes, or judge quantities")
        array = array.astype(np.int64)
    missing = [place for place, value in enumerate(array.tolist()) if _is_gap(value)]
    if missing:
        raise DataError(
            f"{what} are missing in {len(missing):,} rows, the first is {missing[0] + 1}; fill or drop them"
        )
    return [str(value) for value in array.tolist()]


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, float) and bool(np.isnan(value)))


def _ordered(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def _coded(words: Sequence[str], numbers: dict[str, int], what: str) -> Ints:
    unknown = next((word for word in words if word not in numbers), None)
    if unknown is not None:
        raise DataError(f"{what} have the class {shortened(unknown)!r}, which is none of {some(numbers, 8)}")
    return np.fromiter((numbers[word] for word in words), np.int64, len(words))


def _numbers(what: str, values: Any, n: int | None = None) -> Floats:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} aren't numbers ({error}); give one number per example") from error
    if numbers.ndim != 1 or (n is not None and len(numbers) != n):
        wanted = "one number per example" if n is None else f"one number for each of {n} examples"
        raise DataError(f"{what} have shape {numbers.shape}; give {wanted}")
    if not len(numbers):
        raise DataError("there are no examples to judge; give at least one")
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise DataError(
            f"{what} are missing or not finite in {len(wrong):,} rows, the first is {wrong[0] + 1}; fill or drop them"
        )
    return numbers


def _weights(values: Any, n: int) -> Floats:
    if values is None:
        return np.ones(n)
    weights = _numbers("weights", values, n)
    if (weights < 0).any() or not weights.any():
        raise DataError("weights are negative or all zero; give what each example counts, 0 or more")
    return weights
