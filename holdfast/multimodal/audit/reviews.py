"""A person decides: which attributes that were found are spurious, written down with a name and a reason.

Spec 3.2. A large discrepancy is no proof, so nothing is mitigated without a verdict. `mitigated` turns the verdicts
into what fine-tuning needs: words for the prompts and, from what was detected, an attribute and groups for the images.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError, nearest
from holdfast.files import write_atomically
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.task_detections import TaskDetections
from holdfast.multimodal.tasks.task import PARTS, ClipTask

Decision = Literal["spurious", "healthy", "unsure"]

FINDINGS, REVIEW, SEEN, AUDITED = "findings.json", "review.json", "seen.csv", "audited.json"
#: What an image is said to show that shows none of the spurious words.
ABSENT = "none of them"


@dataclass(frozen=True)
class Review:
    """What somebody decided about a finding.

    Attributes:
        label: name of the class.
        word: the attribute.
        verdict: whether it is spurious, a healthy part of the class, or can't be told.
        reviewer: who decided.
        reason: why.
        date: when, as ISO 8601 has it.
    """

    label: str
    word: str
    verdict: Decision
    reviewer: str
    reason: str
    date: str

    def __post_init__(self) -> None:
        if self.verdict not in get_args(Decision):
            raise ConfigError(f"a verdict can't be {self.verdict!r}" + nearest(self.verdict, get_args(Decision)))
        for what in ("reviewer", "reason"):
            if not getattr(self, what).strip():
                raise ConfigError(f"a verdict needs a {what}; give one, so that others can follow it")


def read_review(folder: Path) -> list[Review]:
    """The verdicts of an audit so far, none at first.

    Raises:
        DataError: if the record can't be read.
    """
    path = folder / REVIEW
    if not path.exists():
        return []
    try:
        return [Review(**record) for record in _json(path)]
    except TypeError as error:
        raise DataError(f"{path} isn't a record of verdicts ({error}); restore it, or decide again") from error


def decide(folder: Path, verdict: Review) -> list[Review]:
    """Write a verdict down; an earlier one about the same class and word is replaced.

    Args:
        folder: of an audit.
        verdict: what was decided.

    Returns:
        All verdicts.

    Raises:
        DataError: if the folder has no audit.
        ConfigError: if nothing of the kind was found there.
    """
    path = folder / FINDINGS
    if not path.exists():
        raise DataError(f"there is no audit in {folder}; give the folder that `holdfast audit multimodal` wrote")
    known = {(one["class"], one["word"]) for one in _json(path)}
    if (verdict.label, verdict.word) not in known:
        names = [f"{label}/{word}" for label, word in sorted(known)]
        about = f"{verdict.label}/{verdict.word}"
        raise ConfigError(f"the audit found nothing about {about!r}" + nearest(about, names))
    others = [one for one in read_review(folder) if (one.label, one.word) != (verdict.label, verdict.word)]
    verdicts = [*others, verdict]
    write_atomically(folder / REVIEW, (json.dumps([asdict(one) for one in verdicts], indent=1) + "\n").encode())
    return verdicts


def write_audited(folder: Path, task: ClipTask) -> None:
    """Note which images an audit is of, so that its detections are never taken for those of others."""
    write_atomically(folder / AUDITED, (json.dumps(_images(task), indent=1) + "\n").encode())


def check_audited(folder: Path, task: ClipTask) -> None:
    """Refuse a task whose images aren't those of the audit.

    Raises:
        DataError: if they aren't, or the folder has no audit.
    """
    try:
        known = json.loads((folder / AUDITED).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"there is no complete audit in {folder}; give the folder that `holdfast audit multimodal` wrote"
        ) from error
    if known != _images(task):
        raise DataError(
            f"the audit in {folder} is of other images than those of {task.splits.name} here; give the data the "
            "options that it was audited with, or audit again"
        )


def spurious_words(verdicts: Sequence[Review]) -> tuple[str, ...]:
    """The words that were called spurious, in the order of the verdicts, each once.

    Raises:
        ConfigError: if there is none: without a verdict there is no mitigation.
    """
    words = tuple(dict.fromkeys(one.word for one in verdicts if one.verdict == "spurious"))
    if not words:
        raise ConfigError(
            "nobody has called anything spurious in this audit, so there is nothing to mitigate; look at its page and "
            "decide with `holdfast audit verdict`"
        )
    return words


def mitigated(task: ClipTask, words: Sequence[str], detections: TaskDetections) -> ClipTask:
    """The task with spurious words as the attribute of its images and in its prompts.

    Args:
        task: the task that was audited.
        words: the spurious words.
        detections: what was detected in its images.

    Returns:
        The task. An image has the first of the words that it shows; a value that no image has is left out.
    """
    tables = {part: detections.attributes(part, task.part(part)) for part in PARTS}
    values = {part: first_word(table, words) for part, table in tables.items()}
    used = sorted({int(value) for codes in values.values() for value in np.unique(codes)})
    names = [(*words, ABSENT)[value] for value in used]
    parts = {part: _labelled(task.part(part), np.searchsorted(used, codes), names) for part, codes in values.items()}
    spurious = tuple("" if name == ABSENT else name for name in names)
    neutral = tuple(name or "something else" for name in spurious)
    wording = replace(task.wording, spurious_words=spurious, attribute_phrases=neutral)
    splits = replace(task.splits, train=parts["train"], validation=parts["validation"], test=parts["test"])
    return replace(task, splits=splits, wording=wording)


def first_word(table: Attributes, words: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Number of the first of `words` that each image shows, their count where it shows none, int64 of shape (n,)."""
    shown = np.stack([table.column(word).astype(bool) for word in words], 1)
    places: np.ndarray[Any, np.dtype[np.int64]] = np.where(shown.any(1), shown.argmax(1), len(words)).astype(np.int64)
    return places


def _images(task: ClipTask) -> dict[str, str]:
    """A digest of ids and labels by part."""
    parts = {part: task.part(part) for part in PARTS}
    return {
        part: hashlib.sha256(examples.ids.numpy().tobytes() + examples.labels.numpy().tobytes()).hexdigest()[:16]
        for part, examples in parts.items()
    }


def _labelled(examples: Examples, values: np.ndarray[Any, Any], names: Sequence[str]) -> Examples:
    attributes = torch.from_numpy(np.asarray(values, np.int64))
    groups = [f"{label}/{value}" for label in examples.class_names for value in names]
    grouped = examples.with_groups(examples.labels * len(names) + attributes, groups)
    return replace(grouped, attributes=attributes, attribute_names=tuple(names))


def _json(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read ({error}); restore it, or make the audit again") from error
    if not isinstance(content, list):
        raise DataError(f"{path} must hold a list; restore it, or make the audit again")
    return content
