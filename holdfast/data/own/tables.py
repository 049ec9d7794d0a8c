"""Tables in files: csv, tsv, parquet, Arrow (feather) and JSON lines, one file or a folder of them.

Reading is Arrow's, which uses all cores and guesses types; what is added here is what goes wrong with files that
nobody here wrote: another separator, a column that occurs twice, an object of another program under this suffix.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from holdfast.data.own.columns import check_utf8, understood
from holdfast.data.own.csv_pieces import read_in_pieces
from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.threads import in_threads
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError

_SAMPLE_ROWS = 2_000
_SAMPLE_BYTES = 1 << 20
_BLOCK_BYTES, _LARGEST_ROW = 1 << 20, 1 << 28  # what is parsed at a time, and where one row is larger than that
#: Suffixes of compressed files that Arrow reads.
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_UNEVEN = (
    "give every row as many cells as the first line, which names the columns (a title, comments or a column without a "
    "name have no place before it)"
)
_COMMA = re.compile(r"[-+]?\d+,(\d+)(?:[eE][-+]?\d+)?")
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
_SEPARATORS = (",", ";", "\t", "|")


def read_table(path: Path, *, sample: bool = False) -> pa.Table:
    """A file as a table.

    Args:
        path: the file; its suffix says what it is.
        sample: read the first rows only, where the format allows it.

    Raises:
        DataError: if the file can't be read as what its suffix says, has no rows, or has two columns of one name.
    """
    kind = suffix_of(path)
    try:
        table = understood(READERS[kind](path, sample), trusted=kind.startswith((".csv", ".tsv")))
    except UnicodeDecodeError as error:
        byte = f"byte {error.object[error.start]:#x} at {error.start}"
        raise DataError(f"{path} isn't text in UTF-8 ({byte}); save it again in UTF-8") from error
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, RecursionError, csv.Error) as error:
        remedy = _UNEVEN if "columns, got" in str(error) else "save it again"
        raise DataError(f"{path} can't be read as {kind.lstrip('.')} ({_reason(error)}); {remedy}") from error
    names = [str(name) for name in table.column_names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{path} has several columns named {some(map(repr, twice))}; give each column a name of its own"
        )
    if not names or table.num_rows == 0:
        raise DataError(f"{path} has no rows; give a file with a row per example")
    return table


def suffix_of(path: Path) -> str:
    """The suffix that says what a file is, with that of a compressed file: ``.csv``, ``.csv.zst``."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] and suffixes[-1] in COMPRESSED else (suffixes or [""])[-1]


def read_tables(
    paths: list[Path], place: str, *, parts: Mapping[Path, int] | None = None, sample: bool = False
) -> Source:
    """Several files as one table; a file named after a part of the data, such as ``train-00.parquet``, is that part.

    Args:
        paths: the files.
        place: where they are, for messages.
        parts: the part of the data that each folder with files is, where folders are named so.
        sample: read the first rows of the first file only.

    Raises:
        DataError: if a file can't be read, or the files have different columns.
    """
    tables = [read_table(path, sample=sample) for path in (paths[:1] if sample else paths)]
    first = tables[0]
    for path, table in zip(paths, tables, strict=False):
        if set(table.column_names) != set(first.column_names):
            differing = sorted(map(str, set(table.column_names) ^ set(first.column_names)))
            raise DataError(
                f"{path} and {paths[0]} don't have the same columns ({some(map(repr, differing))}); give files of one "
                "table"
            )
    try:
        whole = pa.concat_tables([table.select(first.column_names) for table in tables], promote_options="permissive")
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"the files in {place} don't make one table: {_reason(error)}; give a column one kind in all of them"
        ) from error
    codes = [part_of_name(path) if parts is None else parts[path.parent] for path in paths]
    layout = None
    if max(codes) >= 0:
        layout = np.repeat(np.asarray(codes[: len(tables)], np.int64), [table.num_rows for table in tables])
    return Source(place, whole, parts=layout, sample=sample)


def part_of_name(path: Path) -> int:
    """The part of the data that a file's name begins with, or -1: ``train-00000-of-00002.parquet`` is 0."""
    word = path.name.partition(".")[0].replace("_", "-").partition("-")[0].lower()
    return -1 if word.isdecimal() else PARTS.get(word, -1)


def _csv(path: Path, sample: bool) -> pa.Table:
    with pa.input_stream(str(path), compression="detect") as stream:
        head = bytes(stream.read(_SAMPLE_BYTES))
    if b"\0" in head:
        raise ValueError("it has NUL bytes, so it is not plain text in UTF-8; convert it")
    text = head.decode("utf-8-sig", errors="strict" if len(head) < _SAMPLE_BYTES else "ignore")
    if not any(next(csv.reader([_first_line(text)], delimiter=_separator(text)), [])):
        raise ValueError("its first line names no columns")
    separator, point, quoted_lines = _separator(text), _point(text), _has_lines_in_quotes(text)
    options: dict[str, Any] = {
        "read_options": pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        "parse_options": pa_csv.ParseOptions(delimiter=separator, newlines_in_values=quoted_lines),
        "convert_options": _converting(point, {}),
    }
    if sample:
        with pa_csv.open_csv(path, **options) as reader:
            batch = next(iter(reader), None)
            table = reader.schema.empty_table() if batch is None else pa.Table.from_batches([batch])
            return _tidy(table.slice(0, _SAMPLE_ROWS))
    table = None
    if not quoted_lines and path.suffix.lower() not in COMPRESSED:
        table = read_in_pieces(path, separator, point, partial(_converting, point))
    if table is None:
        table = _csv_as_a_whole(path, options)
    try:
        in_threads(check_utf8, table.columns)
    except pa.ArrowInvalid as error:
        raise ValueError("it isn't text in UTF-8; convert it") from error
    return _tidy(table)


def _converting(point: str, types: Mapping[str, Any]) -> pa_csv.ConvertOptions:
    """How cells become values of given types, or of those that Arrow finds fitting."""
    return pa_csv.ConvertOptions(
        # Arrow would check that each cell is UTF-8, a fifth of its time: each text is checked, once, when all are read.
        decimal_point=point, check_utf8=False, column_types=types,
        strings_can_be_null=True, quoted_strings_can_be_null=False,
        # None begins as a number does: each number would be looked up among them.
        null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"],
    )  # fmt: skip


def _csv_as_a_whole(path: Path, options: dict[str, Any]) -> pa.Table:
    """By Arrow's own threads; text that repeats is kept once, a fraction of the memory of plain strings."""
    converting = options["convert_options"]
    converting.auto_dict_encode, converting.auto_dict_max_cardinality = True, 1_000
    try:
        return pa_csv.read_csv(path, **options)
    except pa.ArrowInvalid:
        # Slower: later lines may have what the first had not, line ends within quotes or a text as long as a block.
        options["parse_options"].newlines_in_values = True
        options["read_options"].block_size = _LARGEST_ROW
        return pa_csv.read_csv(path, **options)


def _tidy(table: pa.Table) -> pa.Table:
    """The table without blanks around its columns' names."""
    return table.rename_columns([str(name).strip() for name in table.column_names])


def _first_line(text: str) -> str:
    return text.replace("\r", "\n").lstrip("\n").partition("\n")[0]


def _has_lines_in_quotes(text: str) -> bool:
    return any(line.count('"') % 2 for line in text.split("\n")[:-1])


def _point(text: str) -> str:
    """What stands before decimals: a comma where numbers are written 0,5; 1,234 might be a thousand and more."""
    separator = _separator(text)
    if separator == ",":
        return "."
    cells = [cell.strip(' "') for line in text.splitlines()[:_SAMPLE_ROWS] for cell in line.split(separator)]
    written = [_COMMA.fullmatch(cell) for cell in cells]
    certain = any(match and (len(match[1]) != 3 or match[0].lstrip("+-").startswith("0")) for match in written)
    return "," if certain and not any(_POINT.fullmatch(cell) for cell in cells) else "."


def _separator(text: str) -> str:
    """What separates the columns: what the first line has most of, outside of quotes."""
    bare = "".join(_first_line(text).split('"')[::2])
    counts = {separator: bare.count(separator) for separator in _SEPARATORS}
    return max(counts, key=lambda separator: (counts[separator], separator == ","))


def _parquet(path: Path, sample: bool) -> pa.Table:
    with pq.ParquetFile(path) as file:
        if not sample:
            return file.read()
        batch = next(file.iter_batches(_SAMPLE_ROWS), None)
        return file.schema_arrow.empty_table() if batch is None else pa.Table.from_batches([batch])


def _arrow(path: Path, sample: bool) -> pa.Table:
    """The three forms of Arrow's own format: the file, the stream, and feather's first version."""
    with pa.memory_map(str(path)) as stream:
        start = stream.read(6)
        stream.seek(0)
        if start[:4] == b"FEA1":
            return pa_feather.read_table(path)
        with (pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream)(stream) as reader:
            table = reader.read_all()
    return table.slice(0, _SAMPLE_ROWS) if sample else table


def _json(path: Path, sample: bool) -> pa.Table:
    """An object per line, or a list of objects."""
    with pa.input_stream(str(path), compression="detect") as stream:
        listed = bytes(stream.read(1 << 10)).lstrip()[:1] == b"["
    table = pa_json.read_json(_lines_of_list(path) if listed else path)
    return table.slice(0, _SAMPLE_ROWS) if sample else table


def _lines_of_list(path: Path) -> pa.BufferReader:
    with pa.input_stream(str(path), compression="detect") as stream:
        rows = json.loads(bytes(stream.read()))
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("it is a list of something else than objects with a value per column")
    return pa.BufferReader("\n".join(map(json.dumps, rows)).encode())


_TEXTS: dict[str, Callable[[Path, bool], pa.Table]] = {
    ".csv": _csv, ".tsv": _csv, ".jsonl": _json, ".ndjson": _json, ".json": _json
}  # fmt: skip
READERS: dict[str, Callable[[Path, bool], pa.Table]] = {
    **_TEXTS,
    **{suffix + compressed: reader for suffix, reader in _TEXTS.items() for compressed in COMPRESSED},
    ".parquet": _parquet, ".pq": _parquet,
    ".arrow": _arrow, ".arrows": _arrow, ".feather": _arrow, ".ipc": _arrow,
}  # fmt: skip


def tables_in(paths: Iterable[Path]) -> list[Path]:
    """Those of `paths` that are tables, by name; a json file beside others describes them."""
    tables = sorted(path for path in paths if suffix_of(path) in READERS)
    return [path for path in tables if suffix_of(path) != ".json"] or tables


def _reason(error: BaseException) -> str:
    return shortened(str(error).strip().partition("\n")[0] or type(error).__name__, 200)
