"""Data sets for two-tower models, by the names that users type."""

from __future__ import annotations

from holdfast.multimodal.emoji_data import EmojiClip
from holdfast.multimodal.folder_task import FolderClip
from holdfast.multimodal.imagenet_pair import ImageNetPair
from holdfast.multimodal.shapes_data import ShapesClip
from holdfast.multimodal.tasks import ClipData
from holdfast.multimodal.waterbirds import WaterbirdsClip

CLIP_DATA: dict[str, type[ClipData]] = {
    data.name: data for data in (ShapesClip, EmojiClip, WaterbirdsClip, ImageNetPair, FolderClip)
}
