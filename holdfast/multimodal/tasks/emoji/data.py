"""The emoji on coloured grounds as a data set by name, for EfficientNet-Lite0 joined with MiniLM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.emoji.images import emoji_task
from holdfast.multimodal.tasks.task import SMALL_TASK_RECIPE, ClipData, ClipTask


@dataclass(frozen=True)
class EmojiClip(ClipData):
    """Animals and food on blue or orange: 95 % of the animals of training stand on blue, 94 % of the food on orange.

    Attributes:
        seed: decides every image.
    """

    name = "emoji"
    summary = "emoji of animals and food on coloured grounds, 2 classes, 4 groups; drawings come in packages"
    tower = "emoji"
    recipe: ClassVar[Any] = SMALL_TASK_RECIPE

    seed: int = 0

    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """Paste the drawings; `root` isn't looked at."""
        return emoji_task(preprocessing, self.seed)
