"""How a conversation is put to a language model: texts around its turns, or the tokenizer's own chat template.

A conversation becomes pieces of text, of which some are learned: the assistant's turns, each with the token that ends
it, so that a model learns every answer and when to stop, and nothing of what others say.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.readers.chats import Chat, Turn, joined_inputs
from holdfast.errors import ConfigError, DataError, nearest

_log = logging.getLogger(__name__)

SLOT = "{prompt}"

_ALPACA = "Below is an instruction that describes a task{}. Write a response that appropriately completes the request."
_ALPACA_INPUT = ", paired with an input that provides further context"

TEMPLATES = {
    "instruction": f"### Instruction:\n{SLOT}\n\n### Response:\n",
    "alpaca": f"{_ALPACA.format('')}\n\n### Instruction:\n{SLOT}\n\n### Response:\n",
    "report": f"### Findings:\n{SLOT}\n\n### Impression:\n",
    "plain": f"{SLOT}\n",
}


@dataclass(frozen=True)
class Piece:
    """A part of a conversation as text.

    Attributes:
        text: the part.
        learned: whether the model learns to say it.
        ends: whether the end token follows, learned as the text is.
    """

    text: str
    learned: bool = False
    ends: bool = False


@dataclass(frozen=True)
class Template:
    """A text around what is said to the assistant.

    Attributes:
        text: with ``{prompt}`` where the prompt goes; None for the tokenizer's own chat template.
    """

    text: str | None

    @classmethod
    def named(cls, name: str, tokenizer: Any) -> Template:
        """A template by its name, or by its text.

        Args:
            name: ``instruction``, ``alpaca`` (with its preamble), ``report`` or ``plain``; ``chat``, the tokenizer's
                own; ``auto``, the tokenizer's own where it has one and ``instruction`` where it hasn't; or a text with
                ``{prompt}``.
            tokenizer: of the model that reads it.

        Raises:
            ConfigError: if there is no such template, or the tokenizer has no chat template.
        """
        has_own = getattr(tokenizer, "chat_template", None) is not None
        if name == "chat" and not has_own:
            raise ConfigError("the tokenizer has no chat template; use the template 'instruction', or your own text")
        if name == "chat" or (name == "auto" and has_own):
            return cls(None)
        if name == "auto":
            return cls(TEMPLATES["instruction"])
        if name not in TEMPLATES and SLOT not in name:
            known = nearest(name, [*TEMPLATES, "chat", "auto"])
            raise ConfigError(f"there is no template {name!r}{known}; a template of your own says where {SLOT} goes")
        return cls(TEMPLATES.get(name, name))

    def render(self, turns: Sequence[Turn], tokenizer: Any, place: str = "a prompt") -> str:
        """The text that a model is given before its response.

        Args:
            turns: what was said.
            tokenizer: of the model.
            place: what the prompt is called, for messages.

        Raises:
            DataError: if the tokenizer's own template refuses it, as some do with a system's turn.
        """
        if self.text is None:
            return _applied(tokenizer, turns, place, opening=True)
        end = getattr(tokenizer, "eos_token", None) or ""
        pieces = self._pieces((*turns, ("assistant", "")), ())
        return "".join(f"{piece.text}{end if piece.ends else ''}" for piece in pieces[:-1])

    def pieces(self, chat: Chat, tokenizer: Any, place: str = "a conversation") -> list[Piece]:
        """A conversation as texts, the first of which is not learned.

        A response that nothing precedes is plain text, and no template is put around it.

        Args:
            chat: the conversation.
            tokenizer: of the model.
            place: what the conversation is called, for messages.

        Raises:
            DataError: if the tokenizer's own template refuses it.
        """
        if len(chat.turns) == 1:
            return [Piece(""), Piece(chat.response, learned=True, ends=True)]
        if self.text is not None:
            return self._pieces(chat.turns, chat.learned)
        return _chat_pieces(chat, tokenizer, place)

    def _pieces(self, turns: Sequence[Turn], learned: Sequence[int]) -> list[Piece]:
        """Every exchange in the template: what was said since the assistant's last turn, and its answer."""
        pieces, said = list[Piece](), list[Turn]()
        for place, turn in enumerate(turns):
            if turn[0] == "assistant":
                pieces += [Piece(self._around(said)), Piece(turn[1], place in learned, ends=True)]
                said = []
            else:
                said.append(turn)
        return pieces

    def _around(self, said: Sequence[Turn]) -> str:
        assert self.text is not None
        if not said:
            return ""
        if self.text == TEMPLATES["alpaca"] and [role for role, _ in said] == ["user", "input"]:
            about = f"{said[0][1]}\n\n### Input:\n{said[1][1]}"
            return self.text.replace(_ALPACA.format(""), _ALPACA.format(_ALPACA_INPUT)).replace(SLOT, about)
        turns = joined_inputs(said)
        if len(turns) == 1:
            return self.text.replace(SLOT, turns[0][1])
        return self.text.replace(SLOT, "\n\n".join(f"{role.capitalize()}: {content}" for role, content in turns))


def _chat_pieces(chat: Chat, tokenizer: Any, place: str) -> list[Piece]:
    """By the tokenizer's own template: what lies between the text before an answer and the text after it is learned.

    Some templates show earlier turns otherwise once later ones follow (they leave out what was thought, say). There
    only the last answer is learned, since what a model would see before the others can't be known from the whole.
    """
    turns, pieces, done = joined_inputs(chat.turns), list[Piece](), ""
    learned = [place for place in chat.learned if turns[place - 1 : place]]  # nobody asked for what opens a chat
    for number in learned:
        before = _applied(tokenizer, turns[:number], place, opening=True)
        last = number == learned[-1]
        answer = turns[number][1]
        after = before + answer if last else _applied(tokenizer, turns[: number + 1], place)
        for said in (answer, answer.strip()):
            if before.startswith(done) and after.startswith(before + said):
                ending = "" if last else _ending(after[len(before + said) :], tokenizer)
                pieces += [Piece(before[len(done) :]), Piece(said + ending, learned=True, ends=last)]
                done = before + said + ending
                break
        else:
            _log.info("%s: only the last answer is learned, because the chat template changes earlier turns", place)
            given = _applied(tokenizer, turns[: learned[-1]], place, opening=True)
            return [Piece(given), Piece(turns[learned[-1]][1], learned=True, ends=True)]
    return pieces


def _ending(rest: str, tokenizer: Any) -> str:
    """Of what a template puts behind an answer, the part up to the first special token, which ends the turn."""
    found = [(place, token) for token in tokenizer.all_special_tokens if (place := rest.find(token)) >= 0]
    if not found:
        return ""
    place, token = min(found, key=lambda pair: (pair[0], -len(pair[1])))
    return rest[: place + len(token)]


def _applied(tokenizer: Any, turns: Sequence[Turn], place: str, *, opening: bool = False) -> str:
    """Turns in the tokenizer's own template, with the assistant's `opening` behind them or without."""
    messages = [{"role": role, "content": content} for role, content in joined_inputs(turns)]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opening))
    except Exception as error:  # whatever the template raises
        raise DataError(
            f"the tokenizer's chat template refuses {place} ({error}); put prompts otherwise with "
            "--template instruction, or leave it out"
        ) from error
