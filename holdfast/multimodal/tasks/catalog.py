"""Data sets for two-tower models, by the names that users type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import LazyTable

if TYPE_CHECKING:
    from holdfast.multimodal.tasks.task import ClipData

CLIP_DATA: LazyTable[type[ClipData]] = LazyTable(
    "data set for vision-language models",
    {
        "shapes": "holdfast.multimodal.tasks.shapes.data:ShapesClip",
        "emoji": "holdfast.multimodal.tasks.emoji.data:EmojiClip",
        "waterbirds": "holdfast.multimodal.tasks.waterbirds:WaterbirdsClip",
        "imagenet-pair": "holdfast.multimodal.tasks.imagenet_pair:ImageNetPair",
        "folder": "holdfast.multimodal.tasks.folder_task:FolderClip",
    },
)
