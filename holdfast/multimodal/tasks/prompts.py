"""Sentences that name a class in many ways, and what their mean makes of an image: zero-shot classification.

A class is described by many templates whose embeddings are averaged (Radford et al. 2021,
https://arxiv.org/abs/2103.00020). The 80 in `holdfast.multimodal.tasks.templates` are our own, so figures that depend
on the wording of CLIP's list, such as printed zero-shot accuracies, are met with that list only: pass it as
`templates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.tasks.templates import TEMPLATES

#: Kinds of prompts. ``classes``: a class; ``words``: a spurious word alone; ``attributes``: a phrase per attribute
#: value, for images; ``pairs``: every class with every attribute value.
Family = Literal["classes", "words", "attributes", "pairs"]


@dataclass(frozen=True)
class Wording:
    """How a task is said in words.

    Attributes:
        class_names: a name per class, in the order of the labels.
        spurious_words: a word per value of the spurious attribute, in the order of the attributes; an empty one where
            the value means that the attribute is absent.
        attribute_phrases: what an image with each value shows, such as "bird on land"; needed by the release's spurious
            image loss only. An absent attribute needs a neutral word here.
        joined: how a class and a word make one phrase.
        templates: sentences with one slot each.
    """

    class_names: tuple[str, ...]
    spurious_words: tuple[str, ...] = ()
    attribute_phrases: tuple[str, ...] = ()
    joined: str = "{} on {}"
    templates: tuple[str, ...] = TEMPLATES

    def __post_init__(self) -> None:
        if not self.class_names or not all(self.class_names):
            raise ConfigError("a class has no name to be asked for; name each class")
        if not self.templates:
            raise ConfigError("there are no templates; give at least one, such as 'a picture of a {}'")
        for template in self.templates:
            _check_slots(template, 1)
        _check_slots(self.joined, 2)

    @property
    def families(self) -> tuple[Family, ...]:
        """The kinds of prompts that can be made of these words."""
        families: list[Family] = ["classes"]
        if any(self.spurious_words):
            families += ["words", "pairs"]
        if self.attribute_phrases:
            families.append("attributes")
        return tuple(families)

    def phrases(self, family: Family) -> list[list[str]]:
        """What the slots are filled with: a row per entry; of ``pairs`` a row per class, else rows of one phrase."""
        if family == "classes":
            return [[name] for name in self.class_names]
        if family == "words":
            return [[word] for word in self.spurious_words if word]
        if family == "attributes":
            return [[phrase] for phrase in self.attribute_phrases]
        return [
            [_fill(self.joined, name, word) if word else name for word in self.spurious_words]
            for name in self.class_names
        ]

    def tokens(self, model: TwoTowerModel) -> dict[Family, Tensor]:
        """Every prompt as token ids.

        Args:
            model: whose tokenizer is used.

        Returns:
            By family, int64 of shape (entries, templates, length); of ``pairs`` (classes, values, templates, length).
        """
        tokens_of: dict[Family, Tensor] = {}
        for family in self.families:
            rows = self.phrases(family)
            texts = [text for row in rows for phrase in row for text in filled(self.templates, phrase)]
            tokens = model.tokenize(texts).reshape(len(rows), len(rows[0]), len(self.templates), -1)
            tokens_of[family] = tokens if family == "pairs" else tokens.squeeze(1)
        return tokens_of


def ensemble(prompts: Tensor) -> Tensor:
    """One direction per entry: the mean over its templates, brought back to unit length.

    Args:
        prompts: embeddings of unit length, (entries, templates, width).

    Returns:
        (entries, width), unit length: the rows of a zero-shot classifier.
    """
    return F.normalize(prompts.mean(1), dim=-1)


def filled(templates: Sequence[str], phrase: str) -> list[str]:
    """Every template with `phrase` in its slot.

    Example:
        >>> filled(["a picture of a {}.", "one {} alone."], "kelp forest")
        ['a picture of a kelp forest.', 'one kelp forest alone.']
    """
    return [_fill(template, phrase) for template in templates]


def _fill(template: str, *phrases: str) -> str:
    """Not `str.format`: a class name or a template of a user may contain braces that mean something to it."""
    parts = template.split("{}")
    return "".join(part + phrase for part, phrase in zip(parts, (*phrases, ""), strict=True))


def _check_slots(template: str, wanted: int) -> None:
    slots = template.count("{}")
    if slots != wanted:
        raise ConfigError(f"the template {template!r} has {slots} slots; write {{}} in it {wanted} times")
