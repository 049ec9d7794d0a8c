"""The rendered shapes as a data set by name, with the words that describe what its images show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.data.examples import Examples
from holdfast.data.inputs import TensorInputs
from holdfast.data.transforms import Normalise
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.metrics import tight_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.rendered_attributes import attributes_of_rendered
from holdfast.multimodal.tasks.shapes.images import BACKGROUNDS, SHAPE_WORDING, SHAPES, ShapeScenes, render, shape_task
from holdfast.multimodal.tasks.task import SMALL_TASK_RECIPE, ClipData, ClipTask
from holdfast.streams import numpy_stream


@dataclass(frozen=True)
class ShapesClip(ClipData):
    """Discs and squares on sand or sea: 95 % of the discs of training lie on sand, 94 % of the squares on sea.

    Attributes:
        seed: decides every image.
    """

    name = "shapes"
    summary = "rendered discs and squares on sand or sea, 2 classes, 4 groups; needs no files"
    tower = "shapes"
    recipe: ClassVar[Any] = {**SMALL_TASK_RECIPE, "threads": 1}

    seed: int = 0

    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """Render the images; `root` isn't looked at."""
        return shapes_clip_task(preprocessing, self.seed)


def shapes_clip_task(
    preprocessing: Preprocessing, seed: int = 0, counts: dict[str, tuple[int, ...]] | None = None
) -> ClipTask:
    """`shape_task` with boxes around the shapes and words for what else is seen.

    Args:
        preprocessing: of the model.
        seed: decides every image.
        counts: images of each group, by part; those of the experiments by default.

    Returns:
        The task.
    """
    task = shape_task(preprocessing, seed, counts)
    return ClipTask(
        task.splits,
        SHAPE_WORDING,
        {part: TensorInputs(tight_boxes(scenes.masks)) for part, scenes in task.scenes.items()},
        {part: rendered_attributes(scenes) for part, scenes in task.scenes.items()},
    )


def on_every_ground(preprocessing: Preprocessing, count: int = 75, seed: int = 0) -> tuple[Examples, Attributes]:
    """Discs and squares on all four grounds alike, to see which of them a model leans on.

    Args:
        preprocessing: of the model; only its mean and deviation are used.
        count: images of each shape on each ground.
        seed: decides every image.

    Returns:
        The images, and what they show.
    """
    draw = numpy_stream(seed, "shapes", "every ground")
    cells = draw.permutation(np.repeat(np.arange(2 * len(BACKGROUNDS)), count))
    scenes = render(cells // len(BACKGROUNDS), cells % len(BACKGROUNDS), draw)
    normalise = Normalise(preprocessing.mean, preprocessing.std)
    examples = Examples.of(scenes.pixels, scenes.shapes, class_names=SHAPES[:2], transform=normalise)
    return examples, rendered_attributes(scenes)


def rendered_attributes(scenes: ShapeScenes) -> Attributes:
    """What rendered images show: their ground, and the size, place and colour of the shape."""
    return attributes_of_rendered(scenes.pixels, scenes.masks, scenes.backgrounds, BACKGROUNDS)
