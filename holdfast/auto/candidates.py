"""Which methods may be tried, and by which number a model may be chosen, by what is known of the groups.

The three cases are SubpopBench's (Yang et al. 2023, https://arxiv.org/abs/2302.12254): attributes are known in training
and validation, in validation only, or nowhere. A method is tried only where it gets what it needs from the user. This
module imports nothing heavy, so that help pages and declarations can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: Where groups that differ from the classes are known.
Knowledge = Literal["train", "validation", "none"]

#: The methods that are tried, by what is known. Plain training comes first: it is what the others are compared with.
CANDIDATES: Mapping[Knowledge, tuple[str, ...]] = {
    "train": ("erm", "group-balanced", "group-subsampled", "group-dro", "dfr-train", "spare"),
    "validation": ("erm", "jtt", "spare", "eiil", "lff", "dfr-val"),
    "none": ("erm", "jtt", "spare", "lff", "cvar", "epic"),
}

#: How the user is told what is known.
SENTENCES: Mapping[Knowledge, str] = {
    "train": "the groups of training and validation examples are known",
    "validation": "the groups of validation examples are known, those of training examples are not",
    "none": "no groups are known, so a shortcut can't be seen on the validation set and only classes can be compared "
    "(`holdfast audit groups` shows suspects; with --attribute for some hundred validation examples it could be seen)",
}


def criterion_for(knowledge: Knowledge) -> str:
    """By which validation score a model is chosen: the worst group where groups are known there, else the class."""
    return "worst_class" if knowledge == "none" else "worst_group"
