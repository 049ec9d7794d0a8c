"""Predictions of anybody's model as they lie in a table: which column says what, and what is refused.

A row is an example, with its true class or quantity, what a model said of it, and attributes. The table may come from
scikit-learn, XGBoost or a language model; columns are read as those of training data are (`holdfast.data.own`).
Attributes become groups: a missing value is a group of its own, a column of lists makes groups that overlap, and
``age:4`` cuts a column of numbers at its quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.data.own.source import Source
from holdfast.data.own.values import MISSING, Coded, coded_values, numbers_of, plain, quantiles_of
from holdfast.data.own.words import shortened, some
from holdfast.errors import ConfigError, DataError, counted, nearest
from holdfast.training.evaluation.by_group.grouping import Attribute
from holdfast.training.evaluation.by_group.judged import Floats, Judged, judged_classes, judged_quantities

#: What a table of predictions is of.
TableTask = Literal["classes", "regression"]

#: What stands for the class's name in a pattern of columns.
_STAR = "*"
#: Columns that a sentence lists.
_LISTED = 20
#: What ends the name of a column of words in which several are separated.
_LIST, _SEPARATOR = ":list", ";"


@dataclass(frozen=True)
class PredictionColumns:
    """Which column of a table says what.

    Attributes:
        label: the true class, or the true quantity.
        predicted: what the model said; out of the probabilities where omitted.
        probability: one column, of the positive of two classes; or a pattern such as ``p_*`` whose star is the class;
            or ``class=column`` for each.
        groups: columns to group by; ``age:4`` cuts numbers at their quantiles, ``tags:list`` has several words
            separated by semicolons.
        weight: what each row counts.
        positive: of two classes the one that is looked for; the last by default.
        task: what is predicted; by the columns where omitted.
    """

    label: str
    predicted: str | None = None
    probability: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    weight: str | None = None
    positive: str | None = None
    task: TableTask | None = None


@dataclass(frozen=True, eq=False)
class JudgedTable:
    """Predictions that can be judged by group.

    Attributes:
        judged: truth and predictions.
        groups: by the attribute's name.
        notes: what a reader must know of how the table was read, in sentences.
    """

    judged: Judged
    groups: dict[str, Attribute]
    notes: tuple[str, ...]


def judged_table(source: Source, columns: PredictionColumns) -> JudgedTable:
    """Read a table of predictions.

    Raises:
        DataError: if a column is missing or does not hold what it is said to hold.
        ConfigError: if nothing is said to be predicted, or a class has no probability.
    """
    for name in (columns.label, columns.predicted, columns.weight):
        if name is not None:
            _check_column(source, name)
    if columns.predicted is None and not columns.probability:
        raise ConfigError("say what was predicted: --predicted COLUMN, --probability COLUMN, or both")
    groups = dict(_attribute(source, name) for name in columns.groups)
    notes = [
        f"{len(rows):,} of {len(source):,} examples have no {name!r}; they are the group {MISSING}."
        for name, attribute in groups.items()
        for level, rows in zip(attribute.levels, attribute.rows, strict=True)
        if level == MISSING
    ]
    weights = None if columns.weight is None else _numbers(source, columns.weight, "weights")
    regression = columns.task == "regression" or (columns.task is None and _is_regression(source, columns))
    if regression:
        judged = _quantities(source, columns, weights)
    else:
        judged = _classes(source, columns, weights)
        if judged.binary:
            positive = judged.class_names[judged.positive]
            notes.append(f"The positive class, whose recall, precision and rates are shown, is {positive!r}.")
    return JudgedTable(judged, groups, tuple(notes))


def _check_column(source: Source, name: str) -> None:
    if name not in source.columns:
        columns = source.columns
        known = nearest(name, columns) if len(columns) <= _LISTED else f"; it has {some(columns, _LISTED)}"
        raise DataError(f"{source.place} has no column {name!r}{known}")


# ------------------------------------------------------------------------------------------------------ truth, said


def _is_regression(source: Source, columns: PredictionColumns) -> bool:
    """Whether true values are fractions; whole numbers are classes unless it is said otherwise."""
    if columns.probability or not _has_fractions(source, columns.label):
        guess = columns.predicted
        if not columns.probability and guess is not None and _has_fractions(source, guess):
            raise DataError(
                f"column {guess!r} of {source.place} has fractions and {columns.label!r} has none; say --task "
                f"regression, or --probability {guess} if it is that of the positive class"
            )
        return False
    return True


def _has_fractions(source: Source, name: str) -> bool:
    column = plain(source.table[name])
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not pa.types.is_floating(column.type):
        return False
    numbers = column.drop_null().to_numpy()
    finite = numbers[np.isfinite(numbers)]
    return bool((finite != np.round(finite)).any())


def _quantities(source: Source, columns: PredictionColumns, weights: Floats | None) -> Judged:
    if columns.probability or columns.positive is not None:
        option = "--probability" if columns.probability else "--positive"
        raise ConfigError(f"{option} is for classes, and this is a regression; leave it out, or say --task classes")
    assert columns.predicted is not None
    truth, said = (_numbers(source, name, "values") for name in (columns.label, columns.predicted))
    return judged_quantities(truth, said, weights)


def _classes(source: Source, columns: PredictionColumns, weights: Floats | None) -> Judged:
    names = [columns.label] if columns.predicted is None else [columns.label, columns.predicted]
    words = _class_words(source, names)
    occurring = {name for coded in words for name in coded.names}
    classes: Sequence[str] | None = None
    shares: Any = None
    by_class = _probability_columns(source, columns.probability)
    if isinstance(by_class, str):
        shares = _numbers(source, by_class, "probabilities")
        _check_positive(by_class, occurring, _called(columns.positive, occurring))
        if len(occurring) < 2 and columns.positive is not None:
            raise DataError(f"{source.place} has one class only, {some(occurring)}; a probability needs two")
        if len(occurring) > 2:
            raise ConfigError(
                f"--probability {by_class} is one column and there are {len(occurring)} classes; give a column per "
                "class, as in --probability 'p_*'"
            )
    elif by_class:
        by_class = _as_classes_are_called(by_class, occurring)
        lacking = sorted(occurring - by_class.keys())
        if lacking:
            raise ConfigError(
                f"the classes {some(map(repr, lacking))} have no column of probabilities; there are columns of "
                f"{some(map(repr, by_class))}"
            )
        classes = _ordered(by_class)
        shares = np.stack([_numbers(source, by_class[name], "probabilities") for name in classes], 1)
    truth, said = (np.asarray(coded.names, object)[coded.codes] for coded in (words[0], words[-1]))
    return judged_classes(
        truth,
        None if columns.predicted is None else said,
        shares,
        weights=weights,
        class_names=classes,
        positive=_called(columns.positive, occurring | set(classes or ())),
    )


def _called(word: str | None, classes: set[str]) -> str | None:
    """A class as it was typed; truth values are written small here."""
    return word if word is None or word in classes or word.lower() not in classes else word.lower()


def _class_words(source: Source, names: Sequence[str]) -> list[Coded]:
    """Columns of classes as words, alike in all of them: 1, 1.0 and true of 0 and 1 are one class."""
    columns = [_class_column(source, name) for name in names]
    if any(pa.types.is_integer(column.type) for column in columns):
        columns = [column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column for column in columns]
    return [coded_values(column) for column in columns]


def _class_column(source: Source, name: str) -> pa.ChunkedArray:
    column = plain(source.table[name])
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_temporal(column.type):
        raise DataError(f"column {name!r} of {source.place} holds {column.type}; give one class per row")
    missing = np.flatnonzero(column.is_null(nan_is_null=pa.types.is_floating(column.type)).to_numpy())
    if len(missing):
        raise DataError(
            f"{source.place} has nothing in column {name!r} of {counted(len(missing), 'row')} (the first is row "
            f"{int(missing[0]) + 1}); fill them or drop these rows"
        )
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        numbers = column.cast(pa.float64()).to_numpy()
        wrong = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.round(numbers)) | (abs(numbers) > 2**53))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"column {name!r} of {source.place} has {numbers[row]:g} in row {row + 1}, which isn't a class; say "
                "--task regression, or give classes"
            )
        column = pa.chunked_array([pa.array(numbers.astype(np.int64))])
    return column


def _probability_columns(source: Source, given: Sequence[str]) -> str | dict[str, str]:
    """The column of the positive class, or of each class."""
    by_class: dict[str, str] = {}
    for word in given:
        if word in source.columns:
            if len(given) > 1:
                raise ConfigError(
                    f"--probability {word} does not say of which class; write CLASS={word}, or a pattern such as 'p_*'"
                )
            return word
        if _STAR in word:
            before, _, after = word.partition(_STAR)
            fitting = {
                name[len(before) : len(name) - len(after)]: name
                for name in source.columns
                if len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)
            }
            if not fitting:
                raise DataError(f"no column of {source.place} is called {word}; it has {some(source.columns, _LISTED)}")
            by_class |= fitting
        elif "=" in word:
            name, _, column = word.partition("=")
            _check_column(source, column)
            by_class[name] = column
        else:
            _check_column(source, word)
    return by_class


def _check_positive(column: str, occurring: set[str], positive: str | None) -> None:
    """Refuse one column of probabilities that is called after the other of two classes: p_no of yes and no.

    Raises:
        ConfigError: if it is.
    """
    positive = _ordered(dict.fromkeys(occurring, ""))[-1] if positive is None else positive
    before, _, called = column.rpartition("_")
    others = [name for name in occurring if name != positive and name.lower() == called.lower()]
    if before.lower() in ("p", "prob", "proba", "probability") and len(occurring) == 2 and others:
        raise ConfigError(
            f"one column of probabilities is that of the positive class, {positive!r}, and {column!r} is called after "
            f"{others[0]!r}; give the column of {positive!r}, or say --positive {others[0]}"
        )


def _as_classes_are_called(by_class: dict[str, str], occurring: set[str]) -> dict[str, str]:
    """Columns by class, of those only that are classes; ``p_True`` is of true, and ``p_1.0`` of 1."""
    called: dict[str, str] = {}
    for word, column in by_class.items():
        whole = word.removesuffix(".0")
        name = next((form for form in (word, word.strip(), word.lower(), whole) if form in occurring), word)
        if name in called:
            raise ConfigError(f"the columns {called[name]!r} and {column!r} are both of the class {name!r}; leave one")
        called[name] = column
    return called


def _ordered(names: dict[str, str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def _numbers(source: Source, name: str, what: str) -> Floats:
    numbers = numbers_of(source.table[name], name, source.place)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise DataError(
            f"{what} in column {name!r} of {source.place} are missing or not finite in "
            f"{counted(len(wrong), 'row')} (the first is row {int(wrong[0]) + 1}); fill them or drop these rows"
        )
    return numbers


# ----------------------------------------------------------------------------------------------------------- groups


def _attribute(source: Source, asked: str) -> tuple[str, Attribute]:
    """An attribute by what was asked for: a column, a column cut at its quantiles, or one of lists."""
    if asked in source.columns:
        return asked, _of_column(source, asked, source.table[asked])
    if asked.endswith(_LIST) and asked.removesuffix(_LIST) in source.columns:
        name = asked.removesuffix(_LIST)
        words = plain(source.table[name]).cast(pa.string())
        return name, _of_lists(source, name, pc.split_pattern(words, _SEPARATOR))
    name, _, pieces = asked.rpartition(":")
    if name in source.columns and pieces.isdecimal():
        return name, Attribute.of_codes(name, quantiles_of(source.table[name], name, source.place, int(pieces))[1])
    _check_column(source, name if name in source.columns else asked)
    raise ConfigError(f"--group {asked} can't be understood; write {name}:4 for four ranges, or {name}:list for lists")


def _of_column(source: Source, name: str, column: pa.ChunkedArray) -> Attribute:
    kind = column.type
    if pa.types.is_list(kind):
        return _of_lists(source, name, column)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        raise DataError(f"the column {name!r} of {source.place} holds dates; cut them at their quantiles: {name}:4")
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind):
        raise DataError(f"the column {name!r} of {source.place} holds {kind}; group by words, whole numbers or lists")
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = column.cast(pa.float64()).to_numpy()
        known = np.isfinite(numbers)
        if (numbers[known] != np.round(numbers[known])).any() or (abs(numbers[known]) > 2**53).any():
            raise DataError(
                f"the column {name!r} of {source.place} holds fractions; cut it at its quantiles with --group {name}:4"
            )
        whole = np.where(known, numbers, 0).astype(np.int64)
        column = pa.chunked_array([pa.array(whole, mask=~known)])
    present = np.asarray(plain(column).is_valid())
    coded = coded_values(column.filter(pa.array(present)))
    if not len(coded.names):
        raise DataError(f"the column {name!r} of {source.place} is empty; leave it out")
    codes = np.full(len(column), len(coded.names), np.int64)
    codes[present] = coded.codes
    names = coded.names if present.all() else (*coded.names, MISSING)
    return Attribute.of_codes(name, Coded(codes, names))


def _of_lists(source: Source, name: str, column: pa.ChunkedArray) -> Attribute:
    """Groups that overlap: an example is in each group of its list; one without any is in none."""
    inner = column.type.value_type
    if pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_temporal(inner):
        raise DataError(f"the column {name!r} of {source.place} holds {column.type}; give lists of words")
    cells = column.cast(pa.list_(pa.string())).to_pylist()
    words = [
        [MISSING] if cell is None else [word.strip() for word in cell if word is not None and word.strip()]
        for cell in cells
    ]
    return Attribute.of(name, words, len(words))


def shown_rows(source: Source, rows: Sequence[int], columns: Sequence[str]) -> list[list[str]]:
    """What some rows are: the text of the named columns, cut where it is long.

    Raises:
        DataError: if there is no such column.
    """
    for name in columns:
        _check_column(source, name)
    part = source.table.select(list(columns)).take(pa.array(rows, pa.int64()))
    texts = [[shortened(_text(value), _LONGEST_CELL) for value in column.to_pylist()] for column in part.columns]
    return [list(row) for row in zip(*texts, strict=True)]


#: Characters of a text on a page.
_LONGEST_CELL = 400


def _text(value: Any) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
