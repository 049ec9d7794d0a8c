"""What was detected in which image, as a table: written by an audit, or by anybody who has boxes or annotations.

A line per sighting: ``part, id, word`` and, where they are known, ``score, left, top, right, bottom`` with the box as
fractions of the image's middle square. An image may have any number of lines.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from holdfast.data.examples import Examples
from holdfast.errors import DataError
from holdfast.files import write_atomically
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.detectors import THRESHOLD, Detections
from holdfast.multimodal.tasks.task import PARTS, ClipTask

_BOX = ("left", "top", "right", "bottom")


@dataclass(frozen=True, eq=False)
class TaskDetections:
    """Sightings in all parts of a task.

    Attributes:
        words: what was looked for.
        detections: sightings by part.
        has_boxes: whether anybody said where.
    """

    words: tuple[str, ...]
    detections: Mapping[str, Detections]
    has_boxes: bool

    def attributes(self, part: str, examples: Examples, threshold: float = THRESHOLD) -> Attributes:
        """Which image of a part shows what."""
        return self.detections[part].attributes(self.words, len(examples), threshold)

    @classmethod
    def known(cls, task: ClipTask) -> TaskDetections:
        """What a task knows of its images, without boxes."""
        tables = {part: task.known(part) for part in PARTS}
        detections = {}
        for part, table in tables.items():
            images, words = (torch.from_numpy(rows) for rows in np.nonzero(table.present))
            whole = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(len(images), 4)
            detections[part] = Detections(images, words, torch.ones(len(images)), whole)
        return cls(tables["train"].words, detections, has_boxes=False)


def write_detections(path: Path, detections: TaskDetections, task: ClipTask) -> None:
    """Write the table."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("part", "id", "word", *(("score", *_BOX) if detections.has_boxes else ())))
    for part in PARTS:
        of_part, ids = detections.detections[part], task.part(part).ids
        for image, word, score, box in zip(
            *(column.tolist() for column in (of_part.images, of_part.words, of_part.scores, of_part.boxes)), strict=True
        ):
            where = [f"{value:.4f}" for value in (score, *box)] if detections.has_boxes else []
            lines.writerow((part, int(ids[image]), detections.words[word], *where))
    write_atomically(path, text.getvalue().encode())


def read_detections(path: Path, task: ClipTask) -> TaskDetections:
    """Read a table of sightings.

    Args:
        path: a csv file with the columns ``id`` and ``word``, and any of ``part``, ``score``, ``left``, ``top``,
            ``right`` and ``bottom``. Without a part, an id must belong to one image of all parts.
        task: whose images they are.

    Returns:
        The sightings.

    Raises:
        DataError: if the file lacks a column, names an image that isn't there, or has a box outside of the image.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} can't be read as csv: {error}") from error
    if not rows or not {"id", "word"} <= set(rows[0]):
        raise DataError(f"{path} has no sightings; give a line per sighting with the columns id and word")
    places = {(part, int(name)): at for part in PARTS for at, name in enumerate(task.part(part).ids.tolist())}
    words = tuple(sorted({row["word"] for row in rows}))
    number, has_boxes = {word: at for at, word in enumerate(words)}, set(_BOX) <= set(rows[0])
    lines_of: dict[str, list[tuple[int, int, float, list[float]]]] = {part: [] for part in PARTS}
    for line, row in enumerate(rows, 2):
        part, at = _image(row, line, path, places)
        try:
            score = float(row.get("score") or 1)
            box = [float(row[side]) for side in _BOX] if has_boxes else [0.0, 0.0, 1.0, 1.0]
        except ValueError as error:
            raise DataError(f"line {line} of {path} has a score or a box that isn't a number; correct it") from error
        if not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
            raise DataError(f"line {line} of {path} has the box {box}; give fractions of the image, left before right")
        lines_of[part].append((at, number[row["word"]], score, box))
    return TaskDetections(words, {part: _detections(lines) for part, lines in lines_of.items()}, has_boxes)


def _image(row: Mapping[str, str], line: int, path: Path, places: Mapping[tuple[str, int], int]) -> tuple[str, int]:
    try:
        name = int(row["id"])
    except ValueError as error:
        raise DataError(f"line {line} of {path} has the id {row['id']!r}; ids are whole numbers") from error
    parts = [row["part"]] if row.get("part") else [part for part in PARTS if (part, name) in places]
    if len(parts) != 1:
        why = "no image" if not parts else f"images of {' and '.join(parts)}"
        raise DataError(f"line {line} of {path}: the id {name} belongs to {why}; give the part as well, and a known id")
    if (parts[0], name) not in places:
        raise DataError(f"line {line} of {path}: {parts[0]!r} has no image with the id {name}; give a known one")
    return parts[0], places[parts[0], name]


def _detections(lines: list[tuple[int, int, float, list[float]]]) -> Detections:
    images, words, scores, boxes = zip(*lines, strict=True) if lines else ((), (), (), ())
    return Detections(
        torch.tensor(images, dtype=torch.int64),
        torch.tensor(words, dtype=torch.int64),
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
    )
