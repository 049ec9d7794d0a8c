"""How a prompt is put to a language model: a text around it, or the chat template that came with its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.data.readers.instructions import Turn
from holdfast.errors import ConfigError, DataError, nearest

SLOT = "{prompt}"

TEMPLATES = {
    "instruction": f"### Instruction:\n{SLOT}\n\n### Response:\n",
    "report": f"### Findings:\n{SLOT}\n\n### Impression:\n",
    "plain": f"{SLOT}\n",
}


@dataclass(frozen=True)
class Template:
    """A text around the prompt.

    Attributes:
        text: with ``{prompt}`` where the prompt goes; None for the tokenizer's own chat template.
    """

    text: str | None

    @classmethod
    def named(cls, name: str, tokenizer: Any) -> Template:
        """A template by its name, or by its text.

        Args:
            name: ``instruction``, ``report`` or ``plain``; ``chat``, the tokenizer's own; ``auto``, the tokenizer's own
                where it has one and ``instruction`` where it hasn't; or a text with ``{prompt}``.
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

    def render(self, turns: tuple[Turn, ...], tokenizer: Any, place: str = "a prompt") -> str:
        """The text that a model is given before its response.

        Args:
            turns: what was said.
            tokenizer: of the model.
            place: what the prompt is called, for messages.

        Raises:
            DataError: if the tokenizer's own template refuses it, as some do with a system's turn.
        """
        if self.text is None:
            messages = [{"role": role, "content": content} for role, content in turns]
            try:
                return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
            except Exception as error:  # whatever the template raises
                raise DataError(
                    f"the tokenizer's chat template refuses {place} ({error}); put prompts otherwise with "
                    "--template instruction, or leave it out"
                ) from error
        if len(turns) == 1:
            return self.text.replace(SLOT, turns[0][1])
        return self.text.replace(SLOT, "\n\n".join(f"{role.capitalize()}: {content}" for role, content in turns))
