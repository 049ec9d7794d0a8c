"""Conversations out of the files that people fine-tune language models on.

Which columns hold what is in `instruction_columns`, how messages become turns in `chats`. Rows are kept as they were
read, a table as a table, so that a subset can be written in the file's own format, with every column it had and of the
same type.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from holdfast.data.readers.chats import Chat, Turn
from holdfast.data.readers.instruction_columns import (
    USUAL_COLUMNS,
    InstructionColumns,
    Row,
    RowReader,
    find_reader,
    find_source,
    source_candidates,
    source_of,
)
from holdfast.data.readers.stored_rows import StoredRows
from holdfast.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows by which the columns of a file on disk are judged.
_BEGINNING = 10_000

#: Lines of a JSON lines file, mappings, or a table.
Rows: TypeAlias = "Sequence[Row | str] | pa.Table"


@dataclass(frozen=True, eq=False)
class Instructions:
    """Conversations to fine-tune on.

    Attributes:
        name: of the file or data set.
        chats: who says what in each, and which turns are learned.
        sources: number of each example's source, int64 of shape (n,).
        source_names: the sources by their numbers; one, called ``all``, where the data names none.
        rows: the rows as they were read: lines of a JSON lines file, mappings, or a table.
        source_column: that names the sources.
        skipped: of rows that were left out because they can't be read, which and why.
        digest: the fingerprint, where it was computed while the rows were read.
    """

    name: str
    chats: Sequence[Chat]
    sources: NDArray[np.int64]
    source_names: tuple[str, ...]
    rows: Rows = field(repr=False, default=())
    source_column: str | None = None
    skipped: tuple[str, ...] = ()
    digest: str | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return len(self.chats)

    @property
    def prompts(self) -> tuple[tuple[Turn, ...], ...]:
        """The turns before each conversation's last response."""
        return tuple(chat.prompt for chat in self.chats)

    @property
    def responses(self) -> tuple[str, ...]:
        """The last response of each conversation."""
        return tuple(chat.response for chat in self.chats)

    @property
    def fingerprint(self) -> str:
        """A hash of all that is said and learned, so that what was computed on it is never mistaken for others'."""
        if self.digest is not None:
            return self.digest
        seen = hashlib.blake2b(digest_size=16)
        for chat in self.chats:
            seen.update(hashed(chat))
        return seen.hexdigest()

    @property
    def suffix(self) -> str:
        """Of a file that can hold the rows, where they didn't come from one: ``.jsonl``, or else ``.parquet``."""
        if isinstance(self.rows, Sequence) or all(_fits_json(column.type) for column in self.rows.schema):
            return ".jsonl"
        return ".parquet"

    def part(self, positions: NDArray[np.int64]) -> Instructions:
        """Some of the examples, in the order of `positions`."""
        chosen = positions.tolist()
        return Instructions(
            self.name,
            self.chats.take(positions)
            if isinstance(self.chats, StoredChats)
            else tuple(self.chats[place] for place in chosen),
            self.sources[positions],
            self.source_names,
            _some_rows(self.rows, positions),
            self.source_column,
        )

    def encoded(self, suffix: str) -> bytes:
        """The rows as a file: ``.jsonl``, ``.json`` (a list, or lines where lines were read) or ``.parquet``."""
        if isinstance(self.rows, StoredRows):
            return self.rows.encoded(suffix)
        if suffix == ".parquet":
            return _as_parquet(self.rows)
        rows = self.rows if isinstance(self.rows, Sequence) else self.rows.to_pylist()
        if suffix == ".json" and not all(isinstance(row, str) for row in rows):
            text = json.dumps([_mapping(row) for row in rows], ensure_ascii=False, indent=1) + "\n"
        else:
            text = "".join(f"{row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        return text.encode(errors="backslashreplace")  # which is how JSON writes half a character

    @classmethod
    def of(
        cls,
        rows: Rows,
        columns: InstructionColumns = USUAL_COLUMNS,
        name: str = "data",
        *,
        skip_bad: bool = False,
    ) -> Instructions:
        """Conversations out of rows.

        Args:
            rows: mappings, a table, or lines of a JSON lines file; blank lines are passed over, and counted in
                messages.
            columns: which columns hold what.
            name: of the data, for messages.
            skip_bad: leave out rows that can't be read, and remember which and why, instead of ending with the first.

        Raises:
            DataError: if there are no rows, it isn't clear which columns hold what, or a row lacks something.
        """
        rows, counted = _filled(rows)
        if not counted:
            raise DataError(f"{name} has no rows; give at least one prompt with its response")
        reasons: list[str] | None = [] if skip_bad else None
        mappings, reader = _opened(rows, counted, columns, name, reasons)
        source = find_source([row for row in mappings if row], _names(mappings), columns, reader)
        read = _conversations(mappings, reader, source, [f"{number} of {name}" for number in counted], reasons)
        if not read:
            raise DataError(f"not one of the {len(counted):,} rows of {name} can be read: {(reasons or ['?'])[0]}")
        names, codes = np.unique(np.array([whence for _, whence in read.values()], object), return_inverse=True)
        return cls(
            name,
            tuple(chat for chat, _ in read.values()),
            codes.astype(np.int64),
            tuple(map(str, names)),
            rows if len(read) == len(counted) else _some_rows(rows, np.array(list(read), np.int64)),
            source,
            tuple(reasons or ()),
        )


def read_instructions(
    where: str | Path,
    columns: InstructionColumns = USUAL_COLUMNS,
    *,
    split: str = "train",
    skip_bad: bool = False,
    store: Path | None = None,
) -> Instructions:
    """Read a file of instruction data, or a data set of the Hugging Face hub.

    Args:
        where: a ``.jsonl``, ``.json`` or ``.parquet`` file; else a folder or a hub's name, which `datasets` loads.
        columns: which columns hold what.
        split: of a hub's data set.
        skip_bad: leave out rows that can't be read, see `Instructions.of`.
        store: leave the rows of a ``.jsonl`` or ``.parquet`` file on disk, in this file, which whoever asks for it
            removes; conversations are read again whenever they are looked at.

    Raises:
        DataError: if it can't be read, or a row has no prompt and response.
        MissingDependencyError: if `datasets` is needed and not installed.
    """
    path = Path(where)
    if path.is_file() and store is not None:
        return _stored(path, store, columns, str(where), skip_bad)
    if path.is_file():
        return Instructions.of(_rows_of_file(path), columns, str(where), skip_bad=skip_bad)
    if path.suffix in (".jsonl", ".json", ".parquet"):
        raise DataError(f"there is no file {path}; give a file, or the name of a data set on the hub")
    return Instructions.of(_rows_of_hub(str(where), split), columns, str(where), skip_bad=skip_bad)


def _stored(path: Path, store: Path, columns: InstructionColumns, name: str, skip_bad: bool) -> Instructions:
    """One pass over all rows: what can be read, whence it comes, and the fingerprint; the rows stay on disk."""
    rows = StoredRows.of_file(path, store)
    if not len(rows):
        raise DataError(f"{name} has no rows; give at least one prompt with its response")
    reasons: list[str] | None = [] if skip_bad else None
    beginning, unit = rows[:_BEGINNING], "line" if rows.lines else "row"
    opened, reader = _opened(
        list(beginning) if rows.lines else beginning.table(0, _BEGINNING),
        [f"{unit} {rows.number(place)}" for place in range(len(beginning))],
        columns,
        name,
        [] if skip_bad else None,
    )
    source = find_source([row for row in opened if row], _names(opened), columns, reader)
    codes, read, of_row = dict[str, int](), list[int](), list[int]()
    seen = hashlib.blake2b(digest_size=16)
    for place, row in enumerate(rows):
        try:
            mapping = parsed_row(row, f"{unit} {rows.number(place)} of {name}")
            chat, whence = reader.chat(mapping), source_of(mapping, source)
        except (DataError, KeyError, TypeError, ValueError, RecursionError) as error:
            known = isinstance(error, DataError)
            where = f"{unit} {rows.number(place)} of {name} has no prompt with a response ({reason_of(error)})"
            why = str(error).partition(";")[0] if known else where
            if reasons is None:
                remedy = "; correct it, leave it out, or pass over such rows with --skip-bad"
                raise DataError(str(error) if known else why + remedy) from error
            reasons.append(why)
            continue
        seen.update(hashed(chat))
        read.append(place)
        of_row.append(codes.setdefault(whence, len(codes)))
    if not read:
        raise DataError(f"not one of the {len(rows):,} rows of {name} can be read: {(reasons or ['?'])[0]}")
    kept = rows if len(read) == len(rows) else rows.take(np.array(read, np.int64))
    names = sorted(codes)
    ranks = np.array([names.index(whence) for whence in codes], np.int64)
    return Instructions(
        name,
        StoredChats(kept, reader),
        ranks[np.array(of_row, np.int64)],
        tuple(names),
        kept,
        source,
        tuple(reasons or ()),
        seen.hexdigest(),
    )


class StoredChats(Sequence[Chat]):
    """Conversations of rows that stay on disk, read again whenever they are looked at."""

    def __init__(self, rows: StoredRows, reader: RowReader) -> None:
        self._rows, self._reader = rows, reader

    def take(self, positions: NDArray[np.int64]) -> StoredChats:
        """Some of them, in the order of `positions`."""
        return StoredChats(self._rows.take(positions), self._reader)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Chat: ...
    @overload
    def __getitem__(self, place: slice) -> StoredChats: ...
    def __getitem__(self, place: int | slice) -> Chat | StoredChats:
        if isinstance(place, slice):
            return StoredChats(self._rows[place], self._reader)
        return self._reader.chat(parsed_row(self._rows[place], f"row {place + 1}"))

    def __iter__(self) -> Iterator[Chat]:
        for row in self._rows:
            yield self._reader.chat(parsed_row(row, "a row"))


def _rows_of_file(path: Path) -> Rows:
    try:
        if path.suffix == ".jsonl":
            return path.read_text("utf-8-sig").split("\n")
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq  # noqa: PLC0415 - takes a while

            return pq.read_table(path)
        if path.suffix == ".json":
            return _rows_of_json(path.read_text("utf-8-sig"), path)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} can't be read ({error}); is it the whole file?") from error
    raise DataError(f"{path} isn't a .jsonl, .json or .parquet file; convert it to one of them")


def _rows_of_json(text: str, path: Path) -> Sequence[Row | str]:
    """The list in a file, or its lines where each is a row."""
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return text.split("\n")
    if not isinstance(rows, list):
        raise DataError(f"{path} holds no list of rows; give one, or a .jsonl file with a row per line")
    return rows


def _rows_of_hub(name: str, split: str) -> pa.Table:
    try:
        from datasets import load_dataset  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(
            f"{name!r} isn't a file, and data sets of the hub need `datasets`; install it with "
            "`pip install 'holdfast[llm]'`, or give a .jsonl, .json or .parquet file"
        ) from error
    try:
        return load_dataset(name, split=split).with_format("arrow")[:]
    except Exception as error:  # whatever the hub, the network or a builder raises
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} isn't a file and can't be loaded from the hub ({reason}); check the name, the split {split!r} "
            "and the network"
        ) from error


def _filled(rows: Rows) -> tuple[Rows, list[str]]:
    """The rows without blank lines, and what each is called when it is counted."""
    if not isinstance(rows, Sequence):
        return rows, [f"row {number}" for number in range(1, len(rows) + 1)]
    filled = [(number, row) for number, row in enumerate(rows, 1) if not isinstance(row, str) or row.strip()]
    unit = "line" if filled and isinstance(filled[0][1], str) else "row"
    return [row for _, row in filled], [f"{unit} {number}" for number, _ in filled]


def _opened(
    rows: Rows, counted: list[str], columns: InstructionColumns, name: str, reasons: list[str] | None
) -> tuple[Sequence[Row | None], RowReader]:
    """Rows as mappings, of a table only with the columns that are read, and how to read them.

    Where there is a list for `reasons`, what is no row is None, and why is put there.
    """
    if not isinstance(rows, Sequence):
        known = rows.column_names
        reader = find_reader(known, known, columns, name)
        read = {*reader.columns, columns.source, *source_candidates(known, reader)}
        return rows.select([column for column in known if column in read]).to_pylist(), reader
    mappings = list[Row | None]()
    for row, place in zip(rows, counted, strict=True):
        try:
            mappings.append(parsed_row(row, f"{place} of {name}"))
        except DataError as error:
            if reasons is None:
                raise
            reasons.append(str(error).partition(";")[0])
            mappings.append(None)
    first = next((row for row in mappings if row), None)
    if first is None:
        raise DataError(reasons[0] if reasons else f"the rows of {name} have no columns")
    return mappings, find_reader(first, _names(mappings), columns, name)


def _conversations(
    rows: Sequence[Row | None], reader: RowReader, source: str | None, places: list[str], reasons: list[str] | None
) -> dict[int, tuple[Chat, str]]:
    """Conversation and source of every row that can be read, by its position.

    Raises:
        DataError: at the first that can't, unless there is a list for the reasons.
    """
    read = dict[int, tuple[Chat, str]]()
    for position, row in enumerate(rows):
        if row is None:
            continue
        try:
            read[position] = reader.chat(row), source_of(row, source)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            why = f"{places[position]} has no prompt with a response ({reason_of(error)})"
            if reasons is None:
                raise DataError(f"{why}; correct it, leave it out, or pass over such rows with --skip-bad") from error
            reasons.append(why)
    return read


def _names(rows: Sequence[Row | None]) -> dict[str, None]:
    """The columns of any row, in the order in which they appear."""
    return dict.fromkeys(column for row in rows if row for column in row)


def reason_of(error: BaseException) -> str:
    """Why a row has no conversation, in a clause."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def parsed_row(row: Row | str, place: str) -> Row:
    """A row as a mapping.

    Args:
        row: a mapping, or a line of JSON.
        place: what it is called in messages.

    Raises:
        DataError: if it is neither.
    """
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise DataError(
                f"{place} isn't JSON ({why}); correct it, leave it out, or pass over such rows with --skip-bad"
            ) from error
    if not isinstance(row, Mapping):
        raise DataError(f"{place} has no columns; give a mapping of names to values")
    return row


def _mapping(row: Row | str) -> Row:
    return json.loads(row) if isinstance(row, str) else row


def hashed(chat: Chat) -> bytes:
    """What a conversation adds to a fingerprint; with one response it is what it was before chats had several."""
    pair = (chat.prompt, chat.response) if len(chat.learned) == 1 else (chat.turns, chat.learned)
    return json.dumps(pair).encode()


def _some_rows(rows: Rows, positions: NDArray[np.int64]) -> Rows:
    if isinstance(rows, StoredRows):
        return rows.take(positions)
    if isinstance(rows, Sequence):
        return [rows[place] for place in positions.tolist()] if rows else ()
    return rows.take(positions)


def _fits_json(kind: pa.DataType) -> bool:
    """Whether JSON has values of a column's type; it has no times and no bytes, for example."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while

    of = pa.types
    if of.is_dictionary(kind):
        return _fits_json(kind.value_type)
    if of.is_nested(kind) and not of.is_map(kind):
        return all(_fits_json(kind.field(place).type) for place in range(kind.num_fields))
    plain = (of.is_string, of.is_large_string, of.is_integer, of.is_floating, of.is_boolean, of.is_null)
    return any(holds(kind) for holds in plain)


def _as_parquet(rows: Rows) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - takes a while
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.Table.from_pylist([dict(_mapping(row)) for row in rows]) if isinstance(rows, Sequence) else rows
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()
