"""A report on very many groups as tables of a run: what its folded record leaves out (see `folding`).

``tables/test-groups.parquet`` and ``tables/test-classes.parquet`` have a row per group and per class,
``tables/test-predicted.parquet`` a row per group and class that was predicted in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.errors import DataError
from holdfast.training.evaluation.confusion import Confusion
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import GroupScore

_SCORES = ("name", "count", "correct", "train_count")
_CELLS = ("group", "predicted", "count")

#: Gives the columns of a table by its name, which must have those that are named.
ReadTable = Callable[[str, Sequence[str]], Mapping[str, Any]]


def tables_of(report: GroupReport, part: str) -> dict[str, dict[str, Any]]:
    """The columns of each table, by the name of its file."""
    predicted = report.predicted
    return {
        f"tables/{part}-groups.parquet": _columns(report.by_group),
        f"tables/{part}-classes.parquet": _columns(report.by_class),
        f"tables/{part}-predicted.parquet": {
            "group": predicted.rows,
            "predicted": predicted.columns,
            "count": predicted.counts,
        },
    }


def report_of_tables(read: ReadTable, part: str, folded: GroupReport) -> GroupReport:
    """The whole report that a folded one is of.

    Args:
        read: gives tables.
        part: which set the report is on.
        folded: what the run's record has.

    Raises:
        CheckpointError: if a table is missing or damaged.
        DataError: if the tables are not of this report.
    """
    groups, classes = (_scores(read(f"tables/{part}-{what}.parquet", _SCORES)) for what in ("groups", "classes"))
    cells = read(f"tables/{part}-predicted.parquet", _CELLS)
    try:
        rows = np.stack([np.asarray(cells[key]) for key in _CELLS], axis=1).astype(np.int64)
        shape = (len(groups), len(classes))
        predicted = Confusion.from_json({"shape": shape, "cells": rows}, shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"the table of predictions on the {part} set makes no sense: {error}") from error
    whole = GroupReport(folded.grouping, folded.count, folded.correct, groups, classes, predicted)
    if not any(score.count for score in groups) or whole.fold() != folded:
        raise DataError(f"the tables of the {part} set are not those of the run's results; restore them from a copy")
    return whole


def _columns(scores: Sequence[GroupScore]) -> dict[str, Any]:
    return {key: [getattr(score, key) for score in scores] for key in _SCORES}


def _scores(columns: Mapping[str, Any]) -> tuple[GroupScore, ...]:
    rows = zip(*(columns[key].tolist() for key in _SCORES), strict=True)
    try:
        return tuple(
            GroupScore.from_json({**dict(zip(_SCORES, row, strict=True)), "train_count": _whole(row[3])})
            for row in rows
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"a table of groups makes no sense: {error}") from error


def _whole(value: float | None) -> int | None:
    """A training count; a column of which some are unknown comes as floats."""
    return None if value is None or math.isnan(value) else int(value)
