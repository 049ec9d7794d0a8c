"""SNLI: does a sentence follow from another, contradict it, or neither (Bowman et al. 2015)?

The published JSON lines, one file per part. Pairs on which the annotators didn't agree, with the label ``-``, are left
out, as everybody does. Pairs are tokenised when they are gathered and padded to the longest of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.readers.texts import TextInputs
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError, nearest

CLASS_NAMES = ("entailment", "neutral", "contradiction")
PARTS = ("train", "dev", "test")


@register
@dataclass(frozen=True)
class Snli(DataSet):
    """Pairs of sentences: the second follows, contradicts, or neither.

    Attributes:
        tokenizer: a name on the Hugging Face hub, or a local folder.
        max_tokens: pairs are cut to this many tokens.
    """

    name = "snli"
    summary = "569,000 pairs of sentences: entailment, neutral or contradiction"
    files = (
        RemoteFile(
            "snli_1.0.zip",
            "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
            sha256="afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
            size=94_550_081,
            unpacks_to="snli_1.0",
            mirrors=("https://cims.nyu.edu/~sbowman/multinli/snli_1.0.zip",),
        ),
    )
    recipe: ClassVar[Any] = {
        "model": "roberta-base",
        "weights": "hub",
        "epochs": 8,
        "batch_size": 32,
        "learning_rate": 1e-5,
        "optimizer": "adamw",
        "select_by": "accuracy",
    }

    tokenizer: str = "roberta-base"
    max_tokens: int = 128

    def load(self, root: Path) -> Splits:
        """Read the three files; sentences are tokenised when they are gathered."""
        loaded: list[object] = []
        first_id, parts = 0, list[Examples]()
        for part in PARTS:
            path = self.locate(root, f"snli_1.0/snli_1.0_{part}.jsonl")
            premises, hypotheses, labels, ids = read_pairs(path, CLASS_NAMES)
            inputs = TextInputs(premises, self.tokenizer, self.max_tokens, hypotheses, "longest", loaded)
            parts.append(Examples.of(inputs, labels, ids=ids + first_id, class_names=CLASS_NAMES))
            first_id += int(ids[-1]) + 1
        return Splits(self.name, *parts)


def read_pairs(path: Path, class_names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, NDArray[np.int64]]:
    """Premises, hypotheses, labels and line numbers of the pairs that have a label.

    Args:
        path: JSON lines with ``gold_label``, ``sentence1`` and ``sentence2``.
        class_names: the labels, in the order of their numbers.

    Returns:
        Four arrays of shape (pairs,).

    Raises:
        DataError: if a line is no JSON, lacks a field, has an unknown label, or no line has a label.
    """
    rows = list[tuple[str, str, int, int]]()
    with path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                pair = json.loads(line)
                label, premise, hypothesis = pair["gold_label"], pair["sentence1"], pair["sentence2"]
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"line {number + 1} of {path} isn't a pair of sentences ({error}); unpack the archive again"
                ) from error
            if label == "-":
                continue
            if label not in class_names:
                raise DataError(f"line {number + 1} of {path} has label {label!r}{nearest(str(label), class_names)}")
            if not (isinstance(premise, str) and isinstance(hypothesis, str)):
                raise DataError(f"line {number + 1} of {path} isn't a pair of sentences; unpack the archive again")
            rows.append((premise, hypothesis, class_names.index(label), number))
    if not rows:
        raise DataError(f"{path} has no labelled pair; unpack the archive again")
    premises, hypotheses, labels, ids = zip(*rows, strict=True)
    return np.array(premises, object), np.array(hypotheses, object), np.array(labels), np.array(ids)
