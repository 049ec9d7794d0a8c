"""Which columns of fine-tuning data hold what, and how a row becomes a conversation.

Understood by their usual names, in capitals too: chats (``messages``, ``conversations``, ...), a prompt and a response,
Alpaca's ``instruction``, ``input`` and ``output`` with a ``history``, Dolly's ``context``, preference data, of which
the chosen response is learned, and plain ``text``, which is learned whole. Which of them it is follows from the columns
of the first row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.readers.chats import (
    Chat,
    Turn,
    as_messages,
    chat_of_messages,
    is_null,
    plain_text,
    turns_of,
    turns_of_transcript,
)
from holdfast.errors import DataError, nearest

Row = Mapping[str, Any]

_CHATS = ("messages", "conversations", "conversation", "dialog", "dialogue", "chat", "contents")
_PROMPTS = ("prompt", "question", "query", "problem", "instruction", "input", "inputs")
_RESPONSES = ("response", "completion", "output", "answer", "solution", "target", "targets", "chosen")
_TEXTS = ("text", "content", "document")
_SOURCES = ("source", "dataset", "data_source", "category", "task", "task_name", "domain", "subset", "origin")
_SYSTEMS = ("system", "system_prompt", "systeminstruction", "system_instruction", "definition")
_TOOLS = ("tools", "functions")
#: What an instruction is applied to, beside Alpaca's and Dolly's columns for the instruction itself.
_INPUTS = ("input", "context")
#: Exchanges before an instruction, as LLaMA-Factory has them.
_HISTORIES = ("history",)
#: Whether an answer is a good one, as TRL's unpaired preferences say it.
_VERDICTS = ("label",)
#: What rows have that are messages of a tree, as OASST's.
_OF_A_TREE = ("parent_id", "role", "text")
#: Of a row that leaves its source out, among others that don't.
NO_SOURCE = "(no source)"
#: A column is taken for the source by its name only if so many rows share a value on average,
#: unless there are hardly any rows.
_SHARED, _SMALL = 2, 100


@dataclass(frozen=True)
class InstructionColumns:
    """Which columns hold what; those that are None are found by their usual names.

    Attributes:
        prompt: what the model is given.
        response: what it should answer; the same column as the prompt's where it holds whole conversations or texts.
        source: where an example comes from; ``source``, ``dataset``, ``category``, ``task`` or a similar column where
            there is one and its values recur.
    """

    prompt: str | None = None
    response: str | None = None
    source: str | None = None


#: Columns by their usual names.
USUAL_COLUMNS = InstructionColumns()


@dataclass(frozen=True)
class RowReader:
    """How to read the conversation in a row.

    Attributes:
        prompt: column of the prompt; None where the response is all there is.
        response: column of the response, of the conversation or of the text.
        added: column of what an instruction is applied to.
        system: column of what the system says first.
        tools: column of the tools that may be called.
        history: column of the exchanges before the prompt.
        verdict: column that is false where the response is a bad one.
    """

    prompt: str | None
    response: str
    added: str | None = None
    system: str | None = None
    tools: str | None = None
    history: str | None = None
    verdict: str | None = None

    @property
    def columns(self) -> set[str | None]:
        """All columns that are read."""
        return {self.prompt, self.response, self.added, self.system, self.tools, self.history, self.verdict}

    def chat(self, row: Row) -> Chat:
        """The conversation in a row.

        Raises:
            ValueError: if there is none.
            KeyError: if the row lacks a column.
        """
        if self.verdict is not None and row.get(self.verdict) is False:
            raise ValueError(f"its {self.verdict!r} is false: the response is one not to give")
        system = "\n\n".join(part for part in (self._said_by_system(row), self._tools(row)) if part)
        whole = self.prompt is None and self.response.lower() not in _TEXTS  # a text is learned as it is
        answer = _answer(row[self.response], "" if self.prompt else system, whole=whole, column=self.response)
        if self.prompt is None:
            return answer
        given: list[Turn] = [("system", system)] if system else []
        before = self._before(row)
        learned = [len(given) + place for place, (role, _) in enumerate(before) if role == "assistant"]
        given += [*before, *_turns(row[self.prompt], "user")]
        if added := self._optional(row, self.added):
            place = max((place for place, (role, _) in enumerate(given) if role == "user"), default=len(given) - 1)
            given.insert(place + 1, ("input", added))
        if answer.turns[0] in given:  # a conversation that repeats its prompt, as preference data has it
            given = given[: given.index(answer.turns[0])]
        return Chat.of([*given, *answer.turns], [*learned, *(len(given) + place for place in answer.learned)])

    def _before(self, row: Row) -> tuple[Turn, ...]:
        """The exchanges before the prompt, all of whose answers are learned."""
        history = row.get(self.history) if self.history else None
        return () if is_null(history) or history in ("", [], ()) else _turns(history, "user")

    def _said_by_system(self, row: Row) -> str:
        """A text, or Gemini's message without a role worth knowing."""
        value = row.get(self.system) if self.system else None
        if isinstance(value, Mapping):
            return turns_of([{**value, "role": "system"}])[0][1]
        return self._optional(row, self.system)

    def _optional(self, row: Row, column: str | None) -> str:
        value = row.get(column) if column else None
        return "" if is_null(value) else plain_text(value)

    def _tools(self, row: Row) -> str:
        """The tools as the system names them; a list, or JSON in a text."""
        tools = row.get(self.tools) if self.tools else None
        if is_null(tools) or tools in ("", "[]", [], ()):
            return ""
        text = tools if isinstance(tools, str) else json.dumps(tools, ensure_ascii=False, default=str)
        return f"Tools:\n{plain_text(text)}"


def find_reader(first: Collection[str], known: Collection[str], columns: InstructionColumns, name: str) -> RowReader:
    """How to read rows.

    Args:
        first: columns of the first row.
        known: columns of any row.
        columns: those that the user has named.
        name: of the data, for messages.

    Raises:
        DataError: if a named column is missing, or it isn't clear which holds what.
    """
    for column in (columns.prompt, columns.response, columns.source):
        if column is not None and column not in known:
            raise DataError(f"{name} has no column {column!r}{nearest(column, known)}")
    beside = {"system": _first_of(_SYSTEMS, known), "tools": _first_of(_TOOLS, known)}
    unnamed = columns.prompt is None and columns.response is None
    if unnamed and all(column in first for column in _OF_A_TREE):
        raise DataError(
            f"the rows of {name} are single messages of trees (parent_id, role, text), not conversations; join each "
            "way from a root to an answer into a column messages with role and content, or name columns with "
            "--prompt-column and --response-column"
        )
    whole = columns.prompt if columns.prompt == columns.response else None
    if chat := whole or (_first_of(_CHATS, first) if unnamed else None):
        return RowReader(None, chat, **beside)
    instruction = _first_of(("instruction",), first) if columns.prompt is None else None
    alpaca = instruction is not None
    prompt = columns.prompt or instruction or _first_of(_PROMPTS, first)
    response = columns.response or _first_of(_RESPONSES, [column for column in first if column != prompt])
    if response is not None and (prompt is not None or response == "chosen"):
        added = _first_of(_INPUTS, [column for column in known if column != response]) if alpaca else None
        verdict = next((column for column in _VERDICTS if column in known and unnamed), None)
        history = _first_of(_HISTORIES, known) if alpaca else None
        return RowReader(prompt, response, added, **beside, history=history, verdict=verdict)
    text = _first_of(_TEXTS, first)
    if unnamed and text is not None and prompt is None and response is None:
        return RowReader(None, text, **beside)
    raise DataError(
        f"{name} has the columns {', '.join(map(str, first))}, and it isn't clear which is the prompt and which "
        "the response; name them with --prompt-column and --response-column"
    )


def find_source(
    rows: Sequence[Row], known: Collection[str], columns: InstructionColumns, reader: RowReader
) -> str | None:
    """The column that says where examples come from: the one that was named, else one whose values recur.

    Args:
        rows: all of them; of a table, with the columns of `source_candidates`.
        known: columns of any row.
        columns: those that the user has named.
        reader: whose columns are no sources.
    """
    if columns.source is not None:
        return columns.source
    return next((name for name in source_candidates(known, reader) if _recurs(rows, name)), None)


def source_candidates(known: Collection[str], reader: RowReader) -> list[str]:
    """Columns that are called as sources usually are."""
    return [name for name in _usual(_SOURCES, known) if name not in reader.columns]


def source_of(row: Row, column: str | None) -> str:
    """Where a row comes from."""
    if column is None:
        return "all"
    source = row.get(column)
    return NO_SOURCE if is_null(source) else plain_text(source)


def _recurs(rows: Sequence[Row], name: str) -> bool:
    """Whether a column's values are words or numbers that recur; ``source`` may be a web address in every row."""
    values = [row.get(name) for row in rows]
    if not all(is_null(value) or isinstance(value, (str, int, float)) for value in values):
        return False
    # By its plainest name it is taken in small files too, where values can hardly recur.
    return (name.lower() == "source" and len(values) <= _SMALL) or _SHARED * len(set(map(str, values))) <= len(values)


def _answer(value: Any, system: str, *, whole: bool, column: str) -> Chat:
    """What a column holds: messages, one turn of the assistant's, or a whole conversation as a text, where it may."""
    messages = as_messages(value)
    if messages is None and whole and (spoken := turns_of_transcript(plain_text(value))):
        turns = ((("system", system),) if system else ()) + spoken
        return Chat.of(turns, [place for place, (role, _) in enumerate(turns) if role == "assistant"])
    if messages is None and whole and column.lower() in _CHATS:
        raise ValueError(f"{value!r:.80} is no conversation: it names no user and no assistant")
    if messages is None:
        return Chat.of([("assistant", plain_text(value))], [0])
    return chat_of_messages(messages, system)


def _turns(value: Any, role: str) -> tuple[Turn, ...]:
    """Messages as turns; plain text is one turn of `role`."""
    messages = as_messages(value)
    return ((role, plain_text(value)),) if messages is None else turns_of(messages)


def _first_of(names: Iterable[str], known: Collection[str]) -> str | None:
    """The first of some usual names that a column has, however it is capitalised."""
    return next(iter(_usual(names, known)), None)


def _usual(names: Iterable[str], known: Collection[str]) -> list[str]:
    """The columns with usual names, however they are capitalised; the plain name where there are both."""
    called = {str(column).lower(): column for column in sorted(known, key=str)}
    return [called[name] for name in names if name in called]
