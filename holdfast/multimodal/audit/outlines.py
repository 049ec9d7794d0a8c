"""Where objects are, read from files: masks as images, boxes as ImageNet's annotations have them.

Masks and boxes go through the same resize and cut as the images, so that they share the frame of explanation maps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.data.inputs import LazyInputs
from holdfast.data.readers.decoding import decode
from holdfast.errors import DataError
from holdfast.multimodal.audit.metrics import filled_boxes, tight_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.task import Region

_HALF = 128
_NUMBER = re.compile(r"<(width|height|xmin|ymin|xmax|ymax)>\s*([0-9.]+)\s*</\1>")


def mask_inputs(paths: Sequence[Path], preprocessing: Preprocessing, region: Region, workers: int = 0) -> LazyInputs:
    """Outlines of objects from images that are light where the object is.

    Args:
        paths: one file per image.
        preprocessing: of the images.
        region: the outline itself, or the smallest box around it.
        workers: threads that read.

    Returns:
        bool of shape (size, size) each.
    """

    def read(at: int) -> Tensor:
        # its transparent parts are as dark as they say, and not white paper
        grey = np.array(decode(paths[at], remedy="fetch the segmentations", alpha=True).convert("L"))
        mask = preprocessing.square(torch.from_numpy(grey).expand(3, -1, -1))[0] >= _HALF
        return tight_boxes(mask.unsqueeze(0))[0] if region == "box" else mask

    return LazyInputs(read, len(paths), workers)


def box_inputs(paths: Sequence[Path], preprocessing: Preprocessing, workers: int = 0) -> LazyInputs:
    """All boxes of each image, filled, from annotations in PASCAL's format, which ImageNet uses.

    Args:
        paths: one file per image.
        preprocessing: of the images.
        workers: threads that read.

    Returns:
        bool of shape (size, size) each.
    """

    def read(at: int) -> Tensor:
        width, height, boxes = read_boxes(paths[at])
        size = (preprocessing.size, preprocessing.size)
        return filled_boxes(preprocessing.boxes(boxes, width, height), size).any(0)

    return LazyInputs(read, len(paths), workers)


def read_boxes(path: Path) -> tuple[int, int, Tensor]:
    """The size of an image and its boxes.

    Args:
        path: an annotation in PASCAL's format.

    Returns:
        Width, height, and left, top, right, bottom of each box in pixels, (boxes, 4).

    Raises:
        DataError: if the file is missing or has no box.
    """
    try:
        numbers = _NUMBER.findall(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"the annotation {path} can't be read ({error.strerror}); fetch ImageNet's boxes") from error
    sides = {name: round(float(value)) for name, value in numbers if name in ("width", "height")}
    corners = [[float(value) for name, value in numbers if name == side] for side in ("xmin", "ymin", "xmax", "ymax")]
    if len(sides) != 2 or not corners[0] or len({len(values) for values in corners}) != 1:
        raise DataError(f"{path} has no size or no complete box; give annotations in PASCAL's format")
    return sides["width"], sides["height"], torch.tensor(corners).T
