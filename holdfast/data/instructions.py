"""Prompts and responses out of the files that people fine-tune language models on.

A row may be Alpaca's (``instruction``, ``input``, ``output``; MathInstruct adds ``source``), a prompt and a response
under any of the usual names, or a list of messages, whose last answer is the response and all before it the prompt.
Which it is follows from the first row's columns. Rows are kept as they were read, so that a subset can be written in
the file's own format, with every column it had.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError, MissingDependencyError, nearest

#: Who says it (``system``, ``user`` or ``assistant``), and what.
Turn = tuple[str, str]
Row = Mapping[str, Any]

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


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; those that are None are found by their usual names.

    Attributes:
        prompt: what the model is given.
        response: what it should answer.
        source: where an example comes from; ``source`` where there is such a column.
    """

    prompt: str | None = None
    response: str | None = None
    source: str | None = None


#: Columns by their usual names.
USUAL_COLUMNS = Columns()


@dataclass(frozen=True, eq=False)
class Instructions:
    """Prompts and responses.

    Attributes:
        name: of the file or data set.
        prompts: the turns before each response.
        responses: what is learned.
        sources: number of each example's source, int64 of shape (n,).
        source_names: the sources by their numbers; one, called ``all``, where the data names none.
        rows: the rows as they were read: lines of a JSON lines file, or mappings.
    """

    name: str
    prompts: tuple[tuple[Turn, ...], ...]
    responses: tuple[str, ...]
    sources: NDArray[np.int64]
    source_names: tuple[str, ...]
    rows: Sequence[Row | str] = field(repr=False, default=())

    def __len__(self) -> int:
        return len(self.responses)

    @property
    def fingerprint(self) -> str:
        """A hash of all prompts and responses, so that what was computed on them is never mistaken for others'."""
        seen = hashlib.blake2b(digest_size=16)
        for pair in zip(self.prompts, self.responses, strict=True):
            seen.update(json.dumps(pair).encode())
        return seen.hexdigest()

    def part(self, positions: NDArray[np.int64]) -> Instructions:
        """Some of the examples, in the order of `positions`."""
        chosen = positions.tolist()
        return Instructions(
            self.name,
            tuple(self.prompts[place] for place in chosen),
            tuple(self.responses[place] for place in chosen),
            self.sources[positions],
            self.source_names,
            [self.rows[place] for place in chosen] if self.rows else (),
        )

    def encoded(self, suffix: str) -> bytes:
        """The rows as a file: ``.jsonl``, ``.json`` or ``.parquet``."""
        if suffix == ".parquet":
            return _as_parquet([_mapping(row) for row in self.rows])
        if suffix == ".json":
            return (json.dumps([_mapping(row) for row in self.rows], ensure_ascii=False, indent=1) + "\n").encode()
        lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in self.rows)
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def of(cls, rows: Sequence[Row | str], columns: Columns = USUAL_COLUMNS, name: str = "data") -> Instructions:
        """Prompts and responses out of rows.

        Args:
            rows: mappings, or lines of a JSON lines file; blank lines are passed over, and counted in messages.
            columns: which columns hold what.
            name: of the data, for messages.

        Raises:
            DataError: if there are no rows, it isn't clear which columns hold what, or a row lacks something.
        """
        numbers = [number for number, row in enumerate(rows, 1) if not isinstance(row, str) or row.strip()]
        rows = [rows[number - 1] for number in numbers]
        if not rows:
            raise DataError(f"{name} has no rows; give at least one prompt with its response")
        places = [f"{'line' if isinstance(rows[0], str) else 'row'} {number} of {name}" for number in numbers]
        mappings = [_parsed(row, place) for row, place in zip(rows, places, strict=True)]
        reader = _reader(mappings[0], columns, name)
        prompts, responses, sources = list[tuple[Turn, ...]](), list[str](), list[str]()
        for row, place in zip(mappings, places, strict=True):
            try:
                prompt, response = reader.pair(row)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"{place} has no prompt with a response "
                    f"({str(error) or type(error).__name__}); mend it or leave it out"
                ) from error
            prompts.append(prompt)
            responses.append(response)
            sources.append(str(row.get(reader.source, "")) if reader.source else "all")
        names, codes = np.unique(np.array(sources, object).astype(str), return_inverse=True)
        return cls(name, tuple(prompts), tuple(responses), codes.astype(np.int64), tuple(names.tolist()), rows)


def read_instructions(where: str | Path, columns: Columns = USUAL_COLUMNS, *, split: str = "train") -> Instructions:
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


def _rows_of_file(path: Path) -> Sequence[Row | str]:
    try:
        if path.suffix == ".jsonl":
            return path.read_text("utf-8").split("\n")
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq  # noqa: PLC0415 - takes a while

            return list(pq.read_table(path).to_pylist())
        if path.suffix == ".json":
            found = json.loads(path.read_text("utf-8"))
            if not isinstance(found, list):
                raise DataError(f"{path} holds no list of rows; give one, or a .jsonl file with a row per line")
            return found
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} can't be read ({error}); is it the whole file?") from error
    raise DataError(f"{path} is no .jsonl, .json or .parquet file; convert it to one of them")


def _rows_of_hub(name: str, split: str) -> Sequence[Row]:
    try:
        from datasets import load_dataset  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(
            f"{name!r} is no file, and data sets of the hub need `datasets`; install it with "
            "`pip install 'holdfast[llm]'`, or give a .jsonl, .json or .parquet file"
        ) from error
    try:
        return list(load_dataset(name, split=split))
    except Exception as error:  # whatever the hub, the network or a builder raises
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{name!r} is no file and can't be loaded from the hub ({reason}); check the name, the split {split!r} "
            "and the network"
        ) from error


@dataclass(frozen=True)
class _Reader:
    """How to get the prompt and the response out of a row."""

    prompt: str
    response: str
    source: str | None
    added: str | None = None  # what Alpaca's instructions are applied to

    def pair(self, row: Row) -> tuple[tuple[Turn, ...], str]:
        turns = _turns(row[self.prompt], "user")
        if self.prompt == self.response:
            if not turns or turns[-1][0] != "assistant":
                raise ValueError("the last message is not the assistant's")
            return turns[:-1], _said(turns[-1][1])
        answer = _turns(row[self.response], "assistant")
        if self.added and row.get(self.added):
            turns = (("user", f"{turns[0][1]}\n\n{row[self.added]}"),)
        return turns, _said(answer[-1][1])


def _reader(first: Row, columns: Columns, name: str) -> _Reader:
    for asked in (columns.prompt, columns.response, columns.source):
        if asked is not None and asked not in first:
            raise DataError(f"{name} has no column {asked!r}{nearest(asked, first)}")
    source = columns.source or ("source" if "source" in first else None)
    chat = _first_of(_CHATS, first)
    if chat and columns.prompt is None and columns.response is None:
        return _Reader(chat, chat, source)
    alpaca = columns.prompt is None and "instruction" in first
    prompt = columns.prompt or ("instruction" if alpaca else _first_of(_PROMPTS, first))
    response = columns.response or _first_of(_RESPONSES, first)
    if prompt is None or response is None or prompt == response:
        raise DataError(
            f"{name} has the columns {', '.join(map(str, first))}, and it isn't clear which is the prompt and which "
            "the response; name them with --prompt-column and --response-column"
        )
    return _Reader(prompt, response, source, "input" if alpaca and response != "input" else None)


def _first_of(names: Iterable[str], row: Row) -> str | None:
    return next((name for name in names if name in row), None)


def _turns(value: Any, role: str) -> tuple[Turn, ...]:
    """Messages as turns; plain text is one turn of `role`."""
    if isinstance(value, list):
        return tuple(
            (_ROLES[str(message.get("role", message.get("from")))], _said(message.get("content", message.get("value"))))
            for message in value
        )
    return ((role, _said(value)),)


def _said(value: Any) -> str:
    if value is None or isinstance(value, (list, dict)):
        raise ValueError(f"{value!r} is no text")
    return str(value)


def _parsed(row: Row | str, place: str) -> Row:
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except ValueError as error:
            raise DataError(f"{place} is no JSON ({error}); mend it or leave it out") from error
    if not isinstance(row, Mapping):
        raise DataError(f"{place} has no columns; give a mapping of names to values")
    return row


def _mapping(row: Row | str) -> Row:
    return json.loads(row) if isinstance(row, str) else row


def _as_parquet(rows: list[Row]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - takes a while
    import pyarrow.parquet as pq  # noqa: PLC0415

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), buffer)
    return buffer.getvalue()
