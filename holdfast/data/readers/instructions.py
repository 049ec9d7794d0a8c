"""Prompts and responses out of the files that people fine-tune language models on.

A row may be Alpaca's (``instruction``, ``input``, ``output``; MathInstruct adds ``source``), a prompt and a response
under any of the usual names, or a list of messages, whose last answer is the response and all before it the prompt.
Which it is follows from the first row's columns. Rows are kept as they were read, a table as a table, so that a subset
can be written in the file's own format, with every column it had and of the same type.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError, MissingDependencyError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

#: Who says it (``system``, ``user`` or ``assistant``), and what.
Turn = tuple[str, str]
Row = Mapping[str, Any]
#: Lines of a JSON lines file, mappings, or a table.
Rows: TypeAlias = "Sequence[Row | str] | pa.Table"

_CHATS = ("messages", "conversations", "conversation")
_PROMPTS = ("prompt", "question", "query", "problem", "instruction", "input")
_RESPONSES = ("response", "completion", "output", "answer", "solution", "target")
_ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
}
_NO_SOURCE = "(no source)"  # of a row that leaves it out, among others that don't


@dataclass(frozen=True)
class InstructionColumns:
    """Which columns hold what; those that are None are found by their usual names.

    Attributes:
        prompt: what the model is given.
        response: what it should answer.
        source: where an example comes from; ``source`` where there is such a column and it is neither of the others.
    """

    prompt: str | None = None
    response: str | None = None
    source: str | None = None


#: Columns by their usual names.
USUAL_COLUMNS = InstructionColumns()


@dataclass(frozen=True, eq=False)
class Instructions:
    """Prompts and responses.

    Attributes:
        name: of the file or data set.
        prompts: the turns before each response.
        responses: what is learned.
        sources: number of each example's source, int64 of shape (n,).
        source_names: the sources by their numbers; one, called ``all``, where the data names none.
        rows: the rows as they were read: lines of a JSON lines file, mappings, or a table.
    """

    name: str
    prompts: tuple[tuple[Turn, ...], ...]
    responses: tuple[str, ...]
    sources: NDArray[np.int64]
    source_names: tuple[str, ...]
    rows: Rows = field(repr=False, default=())

    def __len__(self) -> int:
        return len(self.responses)

    @property
    def fingerprint(self) -> str:
        """A hash of all prompts and responses, so that what was computed on them is never mistaken for others'."""
        seen = hashlib.blake2b(digest_size=16)
        for pair in zip(self.prompts, self.responses, strict=True):
            seen.update(json.dumps(pair).encode())
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
            tuple(self.prompts[place] for place in chosen),
            tuple(self.responses[place] for place in chosen),
            self.sources[positions],
            self.source_names,
            _some_rows(self.rows, positions),
        )

    def encoded(self, suffix: str) -> bytes:
        """The rows as a file: ``.jsonl``, ``.json`` (a list, or lines where lines were read) or ``.parquet``."""
        if suffix == ".parquet":
            return _as_parquet(self.rows)
        rows = self.rows if isinstance(self.rows, Sequence) else self.rows.to_pylist()
        if suffix == ".json" and not all(isinstance(row, str) for row in rows):
            text = json.dumps([_mapping(row) for row in rows], ensure_ascii=False, indent=1) + "\n"
        else:
            text = "".join(f"{row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        return text.encode(errors="backslashreplace")  # which is how JSON writes half a character

    @classmethod
    def of(cls, rows: Rows, columns: InstructionColumns = USUAL_COLUMNS, name: str = "data") -> Instructions:
        """Prompts and responses out of rows.

        Args:
            rows: mappings, a table, or lines of a JSON lines file; blank lines are passed over, and counted in
                messages.
            columns: which columns hold what.
            name: of the data, for messages.

        Raises:
            DataError: if there are no rows, it isn't clear which columns hold what, or a row lacks something.
        """
        rows, counted = _filled(rows)
        if not counted:
            raise DataError(f"{name} has no rows; give at least one prompt with its response")
        places = [f"{number} of {name}" for number in counted]
        mappings, reader = _opened(rows, places, columns, name)
        prompts, responses, sources = list[tuple[Turn, ...]](), list[str](), list[str]()
        for row, place in zip(mappings, places, strict=True):
            try:
                prompt, response = reader.pair(row)
                sources.append(reader.source_of(row))
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"{place} has no prompt with a response "
                    f"({str(error) or type(error).__name__}); correct it or leave it out"
                ) from error
            prompts.append(prompt)
            responses.append(response)
        names = sorted(set(sources))
        codes = {source: code for code, source in enumerate(names)}
        numbered = np.array([codes[source] for source in sources], np.int64)
        return cls(name, tuple(prompts), tuple(responses), numbered, tuple(names), rows)


def read_instructions(
    where: str | Path, columns: InstructionColumns = USUAL_COLUMNS, *, split: str = "train"
) -> Instructions:
    """Read a file of instruction data, or a data set of the Hugging Face hub.

    Args:
        where: a ``.jsonl``, ``.json`` or ``.parquet`` file; else a folder or a hub's name, which `datasets` loads.
        columns: which columns hold what.
        split: of a hub's data set.

    Raises:
        DataError: if it can't be read, or a row has no prompt and response.
        MissingDependencyError: if `datasets` is needed and not installed.
    """
    path = Path(where)
    if path.is_file():
        return Instructions.of(_rows_of_file(path), columns, str(where))
    if path.suffix in (".jsonl", ".json", ".parquet"):
        raise DataError(f"there is no file {path}; give a file, or the name of a data set on the hub")
    return Instructions.of(_rows_of_hub(str(where), split), columns, str(where))


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
    raise DataError(f"{path} is no .jsonl, .json or .parquet file; convert it to one of them")


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
            f"{name!r} is no file, and data sets of the hub need `datasets`; install it with "
            "`pip install 'holdfast[llm]'`, or give a .jsonl, .json or .parquet file"
        ) from error
    try:
        return load_dataset(name, split=split).with_format("arrow")[:]
    except Exception as error:  # whatever the hub, the network or a builder raises
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} is no file and can't be loaded from the hub ({reason}); check the name, the split {split!r} "
            "and the network"
        ) from error


def _filled(rows: Rows) -> tuple[Rows, list[str]]:
    """The rows without blank lines, and what each is called when it is counted."""
    if not isinstance(rows, Sequence):
        return rows, [f"row {number}" for number in range(1, len(rows) + 1)]
    filled = [(number, row) for number, row in enumerate(rows, 1) if not isinstance(row, str) or row.strip()]
    unit = "line" if filled and isinstance(filled[0][1], str) else "row"
    return [row for _, row in filled], [f"{unit} {number}" for number, _ in filled]


def _opened(rows: Rows, places: list[str], columns: InstructionColumns, name: str) -> tuple[Sequence[Row], _Reader]:
    """Rows as mappings, of a table only with the columns that are read, and how to read them."""
    if not isinstance(rows, Sequence):
        reader = _reader(rows.column_names, rows.column_names, columns, name)
        return rows.select([column for column in rows.column_names if column in reader.columns]).to_pylist(), reader
    mappings = [_parsed(row, place) for row, place in zip(rows, places, strict=True)]
    return mappings, _reader(mappings[0], dict.fromkeys(column for row in mappings for column in row), columns, name)


@dataclass(frozen=True)
class _Reader:
    """How to get the prompt and the response out of a row."""

    prompt: str
    response: str
    source: str | None
    added: str | None = None  # what Alpaca's instructions are applied to

    @property
    def columns(self) -> set[str | None]:
        return {self.prompt, self.response, self.source, self.added}

    def pair(self, row: Row) -> tuple[tuple[Turn, ...], str]:
        given = _turns(row[self.prompt], "user")
        if self.prompt == self.response:
            turns = given
        else:
            added = row.get(self.added) if self.added else None
            if not _null(added) and added != "":
                given = _with_input(given, _text(added))
            turns = (*given, *_turns(row[self.response], "assistant"))
            if len(turns) == len(given):
                raise ValueError("there is no message in the response")
        if not turns or turns[-1][0] != "assistant":
            raise ValueError("the last message is not the assistant's")
        return turns[:-1], turns[-1][1]

    def source_of(self, row: Row) -> str:
        if self.source is None:
            return "all"
        source = row.get(self.source)
        return _NO_SOURCE if _null(source) else _whole(str(source))


def _reader(first: Collection[str], known: Collection[str], columns: InstructionColumns, name: str) -> _Reader:
    """How to read rows, given the columns of the first and those of any."""
    for column in (columns.prompt, columns.response, columns.source):
        if column is not None and column not in known:
            raise DataError(f"{name} has no column {column!r}{nearest(column, known)}")
    chat = _first_of(_CHATS, first)
    one = columns.prompt if columns.prompt == columns.response else None
    chat = one or (chat if columns.prompt is None and columns.response is None else None)
    alpaca = columns.prompt is None and "instruction" in first
    prompt = chat or columns.prompt or ("instruction" if alpaca else _first_of(_PROMPTS, first))
    response = chat or columns.response or _first_of(_RESPONSES, first)
    if prompt is None or response is None or (prompt == response and not chat):
        raise DataError(
            f"{name} has the columns {', '.join(map(str, first))}, and it isn't clear which is the prompt and which "
            "the response; name them with --prompt-column and --response-column"
        )
    source = columns.source or ("source" if "source" in known and "source" not in (prompt, response) else None)
    return _Reader(prompt, response, source, "input" if alpaca and not chat and response != "input" else None)


def _first_of(names: Iterable[str], known: Collection[str]) -> str | None:
    return next((name for name in names if name in known), None)


def _turns(value: Any, role: str) -> tuple[Turn, ...]:
    """Messages as turns; plain text is one turn of `role`."""
    return tuple(_turn(message) for message in value) if isinstance(value, list) else ((role, _text(value)),)


def _turn(message: Any) -> Turn:
    if not isinstance(message, Mapping):
        raise ValueError(f"{message!r:.80} stands where a message with its role and content should")
    return (
        _ROLES[str(message.get("role", message.get("from")))],
        _text(message.get("content", message.get("value"))),
    )


def _with_input(turns: tuple[Turn, ...], text: str) -> tuple[Turn, ...]:
    """The turns with what the instruction is applied to, behind the user's last one."""
    place = max((place for place, (role, _) in enumerate(turns) if role == "user"), default=None)
    if place is None:
        return (*turns, ("user", text))
    return (*turns[:place], ("user", f"{turns[place][1]}\n\n{text}"), *turns[place + 1 :])


def _null(value: Any) -> bool:
    """Whether nothing is there; pandas writes NaN for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    if _null(value) or isinstance(value, (list, dict)):
        raise ValueError(f"{value!r:.80} is no text")
    return _whole(str(value))


def _whole(text: str) -> str:
    """The text, unless it has half a character, which no file and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"letter {error.start + 1} of {text!r:.80} is half a character, a lone surrogate") from error
    return text


def _parsed(row: Row | str, place: str) -> Row:
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except ValueError as error:
            raise DataError(f"{place} is no JSON ({error}); correct it or leave it out") from error
    if not isinstance(row, Mapping):
        raise DataError(f"{place} has no columns; give a mapping of names to values")
    return row


def _mapping(row: Row | str) -> Row:
    return json.loads(row) if isinstance(row, str) else row


def _some_rows(rows: Rows, positions: NDArray[np.int64]) -> Rows:
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
