"""Words for what rendered images show besides their class: the ground, and the size, place and colour of the thing.

Most of them have nothing to do with any shortcut, as most words of a vocabulary haven't: a ranking that finds the
planted ones had something to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.multimodal.audit.attributes import Attributes

_COLOURS = ("red", "green", "blue")
_BRIGHT = 0.5


def attributes_of_rendered(pixels: Tensor, masks: Tensor, grounds: Tensor, names: Sequence[str]) -> Attributes:
    """Which image shows what.

    Args:
        pixels: uint8 of shape (n, 3, side, side).
        masks: where the thing is, bool of shape (n, side, side).
        grounds: number of each image's ground, int64 of shape (n,).
        names: a word per ground.

    Returns:
        The table.
    """
    covered, side = masks.float(), masks.shape[-1]
    area = covered.sum((1, 2)).clamp_min(1)
    middle = (torch.arange(side) + 0.5) / side
    across, down = (covered.sum(1) @ middle) / area, (covered.sum(2) @ middle) / area
    colour = (pixels / 255 * covered[:, None]).sum((2, 3)) / area[:, None]
    large = area > area.median()
    columns = {
        **{word: grounds == number for number, word in enumerate(names)},
        "large thing": large,
        "small thing": ~large,
        "left half": across < 0.5,
        "right half": across >= 0.5,
        "upper half": down < 0.5,
        "lower half": down >= 0.5,
        "bright thing": colour.mean(1) >= _BRIGHT,
        "dark thing": colour.mean(1) < _BRIGHT,
        **{f"{word} thing": colour.argmax(1) == channel for channel, word in enumerate(_COLOURS)},
    }
    return Attributes(tuple(columns), np.stack([column.numpy() for column in columns.values()], 1))
