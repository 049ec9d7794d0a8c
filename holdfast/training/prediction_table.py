"""Predictions as a file: a row per example, by id, with its label and group where they are known.

Each class has a column with its probability; of many classes only the most likely ones are kept, unless all are wanted.
The file is parquet or csv, as its ending says, and is there as a whole or not at all.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.files import write_atomically
from holdfast.training.prediction import ClassScores, PredictionData

#: Up to so many classes each has a column of its own.
COLUMNS = 100
#: Of more classes, so many are kept.
TOP = 5


def prediction_table(scores: ClassScores, data: PredictionData, class_names: Sequence[str]) -> pa.Table:
    """A row per example.

    Columns are ``id``, then ``name``, ``client``, ``label`` and ``group`` where they are known, ``predicted``, and a
    probability per class, ``p_<class>``; of the most likely classes only, ``top_1`` and ``p_top_1`` and so on; of a
    margin, ``margin``. Groups that overlap are a list.

    Args:
        scores: what the model says.
        data: of what.
        class_names: a name per class.
    """
    examples, names = data.examples, list(class_names)
    columns: dict[str, Any] = {"id": examples.ids.numpy()}
    if data.names is not None:
        columns["name"] = list(data.names)
    if data.clients is not None:
        columns["client"] = list(data.clients)
    if data.labelled:
        columns["label"] = _words(examples.labels, names)
        columns |= _groups(examples)
    columns["predicted"] = _words(scores.predicted, names)
    return pa.table({**columns, **_score_columns(scores, names)})


def _score_columns(scores: ClassScores, names: Sequence[str]) -> dict[str, Any]:
    if scores.classes is not None:
        columns: dict[str, Any] = {}
        for rank in range(scores.classes.shape[1]):
            columns[f"top_{rank + 1}"] = _words(scores.classes[:, rank], names)
            columns[f"p_top_{rank + 1}"] = scores.scores[:, rank].numpy()
        return columns
    if scores.scores.shape[1] == 1 < len(names):
        return {"margin": scores.scores[:, 0].numpy()}
    unique = names if len(set(names)) == len(names) else [str(place) for place in range(len(names))]
    return {f"p_{name}": scores.scores[:, place].numpy() for place, name in enumerate(unique)}


def _groups(examples: Examples) -> dict[str, Any]:
    if examples.memberships is not None:
        rows = [
            [name for name, inside in zip(examples.group_names, row, strict=True) if inside]
            for row in examples.memberships.tolist()
        ]
        return {"group": pa.array(rows, pa.list_(pa.string()))}
    return {} if examples.groups is None else {"group": _words(examples.groups, examples.group_names)}


def _words(values: Tensor, names: Sequence[str]) -> pa.Array:
    """Names of numbers, each name stored once."""
    return pa.DictionaryArray.from_arrays(values.to(torch.int32).numpy(), pa.array(list(names), pa.string()))


# ------------------------------------------------------------------------------------------------------------ files


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _csv(table: pa.Table) -> bytes:
    plain: Mapping[str, Any] = {
        name: [";".join(cell) if isinstance(cell, list) else cell for cell in column.to_pylist()]
        if pa.types.is_list(column.type) or pa.types.is_dictionary(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(dict(plain)), buffer)
    return buffer.getvalue()


_WRITERS = {".parquet": _parquet, ".csv": _csv}


def check_table_place(path: Path, *, overwrite: bool, option: str = "--out") -> None:
    """Refuse a place where a table can't be written, before work is done for it.

    Raises:
        ConfigError: if there is something already, its ending is no format's, or its folder can't be made.
    """
    if path.suffix not in _WRITERS:
        raise ConfigError(f"{path} ends in {path.suffix or 'nothing'}; tables are written as {' or '.join(_WRITERS)}")
    check_file_place(path, overwrite=overwrite, option=option)


def check_file_place(path: Path, *, overwrite: bool, option: str = "--out") -> None:
    """Refuse a place where a file can't be written, whatever its ending.

    Args:
        path: the place.
        overwrite: whether a file that is there may be replaced.
        option: that names another place.

    Raises:
        ConfigError: if there is something already, or its folder can't be made.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give the name of a file in it")
    if path.exists() and not overwrite:
        raise ConfigError(f"there is a file at {path} already; choose another {option}, or say --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder of {path} can't be made ({error.strerror}); choose another {option}") from error
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"the folder of {path} can't be written to; choose another {option}")


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as its ending says, ``.parquet`` or ``.csv``, as a whole or not at all."""
    write_atomically(path, _WRITERS[path.suffix](table))
