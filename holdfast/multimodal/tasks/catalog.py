"""Data sets for two-tower models, by the names that users type."""

from __future__ import annotations

from holdfast.multimodal.tasks.emoji.data import EmojiClip
from holdfast.multimodal.tasks.folder_task import FolderClip
from holdfast.multimodal.tasks.imagenet_pair import ImageNetPair
from holdfast.multimodal.tasks.shapes.data import ShapesClip
from holdfast.multimodal.tasks.task import ClipData
from holdfast.multimodal.tasks.waterbirds import WaterbirdsClip

CLIP_DATA: dict[str, type[ClipData]] = {
    data.name: data for data in (ShapesClip, EmojiClip, WaterbirdsClip, ImageNetPair, FolderClip)
}
