"""Conversations out of messages: who says what, and which of it a model learns to say.

Messages come as OpenAI's (``role`` and ``content``, which may be a list of parts, with tool calls), Anthropic's (whose
parts use tools and bring their results), ShareGPT's (``from`` and ``value``), Gemini's (``role`` and ``parts``), as
pairs of what is asked and answered, or as one text in which speakers are named before they speak. Every assistant's
turn is learned, unless its message has the weight 0 (OpenAI's fine-tuning format) or belongs to what was given as a
prompt. What follows the last learned turn teaches nothing and is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

#: Who says it (``system``, ``user``, ``assistant`` or ``tool``), and what. ``input`` is what the user's turn before it
#: is about, as in Alpaca's rows: some templates put it under a heading of its own.
Turn = tuple[str, str]

_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter", "instruction"), "user"),
    **dict.fromkeys(
        ("assistant", "gpt", "model", "chatgpt", "chatbot", "bot", "bing", "bard", "ai", "function_call"), "assistant"
    ),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "tool_response", "function response"), "tool"),
}
_WHO, _WHAT = ("role", "from"), ("content", "value", "parts", "text")
_LEARNED_BY = "assistant"
#: Two turns in one mapping, as lists of exchanges have them.
_PAIRS = (
    ("input", "output"), ("human", "assistant"), ("user", "assistant"), ("instruction", "output"),
    ("question", "answer"), ("prompt", "response"),
)  # fmt: skip
#: Who speaks, at the beginning of a line of a text that is a whole conversation.
_SPEAKER = re.compile(
    r"^[ \t]*(?:#{1,3}[ \t]*)?(system|human|user|assistant|ai|bot|gpt|function response)[ \t]*:[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Chat:
    """A conversation.

    Attributes:
        turns: what is said, up to the last turn that is learned.
        learned: which turns are learned, ascending; the last of them is the last turn.
    """

    turns: tuple[Turn, ...]
    learned: tuple[int, ...]

    @classmethod
    def of(cls, turns: Sequence[Turn], learned: Sequence[int]) -> Chat:
        """The conversation up to its last learned turn.

        Raises:
            ValueError: if nothing is learned.
        """
        if not learned:
            raise ValueError("no message is the assistant's")
        return cls(tuple(turns[: learned[-1] + 1]), tuple(learned))

    @property
    def prompt(self) -> tuple[Turn, ...]:
        """The turns before the last one, with every input behind what the user says of it."""
        return joined_inputs(self.turns[:-1])

    @property
    def response(self) -> str:
        """The last turn's text."""
        return self.turns[-1][1]


def chat_of_messages(messages: Sequence[Any], system: str = "") -> Chat:
    """A conversation whose assistant's turns are all learned, but for those with the weight 0.

    Args:
        messages: mappings, oldest first.
        system: said before them by the system, if anything.

    Raises:
        ValueError: if something is no message, or no turn is learned.
    """
    messages = [message for entry in messages for message in _messages_of(entry)]
    before: tuple[Turn, ...] = (("system", system),) if system else ()
    turns = (*before, *turns_of(messages))
    weights = [1.0] * len(before) + [_weight(message) for message in messages]
    return Chat.of(turns, [place for place, turn in enumerate(turns) if turn[0] == _LEARNED_BY and weights[place]])


def turns_of(messages: Sequence[Any]) -> tuple[Turn, ...]:
    """Messages as turns.

    Raises:
        ValueError: if one of them is no message that can be read as text.
    """
    return tuple(_turn(message) for entry in messages for message in _messages_of(entry))


def turns_of_transcript(text: str) -> tuple[Turn, ...]:
    """The turns of a text that is a conversation from its first line on, with a user and an assistant; else none."""
    found = list(_SPEAKER.finditer(text))
    roles = [_ROLES[one[1].lower()] for one in found]
    if not {"user", _LEARNED_BY} <= {*roles} or text[: found[0].start()].strip():
        return ()
    ends = [*(one.start() for one in found[1:]), len(text)]
    return tuple((role, text[one.end() : end].strip()) for role, one, end in zip(roles, found, ends, strict=True))


def joined_inputs(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns with every input as a paragraph of the user's turn before it."""
    joined: list[Turn] = []
    for role, text in turns:
        if role == "input" and joined and joined[-1][0] == "user":
            joined[-1] = ("user", f"{joined[-1][1]}\n\n{text}")
        else:
            joined.append(("user" if role == "input" else role, text))
    return tuple(joined)


def as_messages(value: Any) -> Sequence[Any] | None:
    """The messages that a column holds, also where it holds them as JSON; None where it is something else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
        if not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
            return None
    return value if isinstance(value, (list, tuple)) else None


def is_null(value: Any) -> bool:
    """Whether nothing is there; pandas writes NaN for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def plain_text(value: Any) -> str:
    """A value as text.

    Raises:
        ValueError: if it is none, or has half a character, which no file and no tokenizer takes.
    """
    if is_null(value) or isinstance(value, (list, tuple, Mapping, bytes)):
        raise ValueError(f"{value!r:.80} isn't text")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"letter {error.start + 1} of {text!r:.80} is half a character, a lone surrogate") from error
    return text


def _messages_of(entry: Any) -> Sequence[Any]:
    """A message, or the two of a pair: a mapping, or a list of two texts."""
    if isinstance(entry, (list, tuple)) and len(entry) == 2 and all(isinstance(text, str) for text in entry):
        return _exchange(*entry)
    if not isinstance(entry, Mapping) or _first(entry, _WHO) is not None:
        return (entry,)
    pair = next((pair for pair in _PAIRS if not any(is_null(entry.get(name)) for name in pair)), None)
    return (entry,) if pair is None else _exchange(*(entry[name] for name in pair))


def _exchange(asked: Any, answered: Any) -> Sequence[Any]:
    return {"role": "user", "content": asked}, {"role": _LEARNED_BY, "content": answered}


def _turn(message: Any) -> Turn:
    if not isinstance(message, Mapping):
        raise ValueError(f"{message!r:.80} stands where a message with its role and content should")
    name = _first(message, _WHO)
    role = _ROLES.get(str(name).lower())
    if role is None:
        raise ValueError(f"a message's role is {name!r:.40}, and not system, user, assistant or tool")
    content = _first(message, _WHAT)
    parts = content if isinstance(content, (list, tuple)) else ()
    calls = [*_calls(message), *(_tagged(_used(part)) for part in parts if _is(part, "tool_use"))]
    said = "" if content is None and calls else _content(content)
    if role == "user" and any(_is(part, "tool_result") for part in parts):
        role = "tool"
    return role, "\n".join(part for part in (said, *calls) if part) if calls else said


def _first(message: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of some keys that has a value; tables have all of them, and null where a row lacks one."""
    return next((message[name] for name in names if not is_null(message.get(name))), None)


def _content(value: Any) -> str:
    """Text, or the text of all parts."""
    if isinstance(value, (list, tuple)):
        return "".join(_part(part) for part in value)
    return plain_text(value)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return plain_text(part)
    if _is(part, "tool_use"):  # is among the calls
        return ""
    if _is(part, "tool_result"):
        return "" if is_null(part.get("content")) else _content(part["content"])
    text = part.get("text") if isinstance(part, Mapping) else None
    if is_null(text):
        kind = part.get("type") if isinstance(part, Mapping) else part
        raise ValueError(f"a message has a part that isn't text ({kind!r:.40}); language models here read text only")
    return plain_text(text)


def _calls(message: Mapping[str, Any]) -> list[str]:
    """The tool calls of a message, each as the JSON of its function and arguments between tags, as Hermes has them."""
    calls = message.get("tool_calls")
    listed = list(calls) if isinstance(calls, (list, tuple)) else []
    if isinstance(message.get("function_call"), Mapping):  # OpenAI's before there were several
        listed.append(message["function_call"])
    return [_tagged(_call(call)) for call in listed]


def _tagged(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


def _is(part: Any, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind


def _used(part: Mapping[str, Any]) -> str:
    """Anthropic's use of a tool, as OpenAI writes it."""
    return _call({"name": part.get("name"), "arguments": part.get("input")})


def _call(call: Any) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or is_null(function.get("name")):
        raise ValueError(f"{call!r:.80} stands where a tool call with its function should")
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # OpenAI sends them as JSON in a text
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False, default=str)


def _weight(message: Any) -> float:
    """Of a message in the loss; all or nothing."""
    weight = message.get("weight") if isinstance(message, Mapping) else None
    if is_null(weight):
        return 1.0
    if not isinstance(weight, (int, float)) or weight not in (0, 1):
        raise ValueError(f"a message's weight is {weight!r:.40}; 0 or 1 can be")
    return float(weight)
