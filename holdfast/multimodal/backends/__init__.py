"""Two-tower models behind one interface: transformers' CLIP, open_clip's, and a small one for a CPU."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.multimodal.backends.base import MAX_SCALE, ExplainedLayer, Trained, TwoTowerModel
    from holdfast.multimodal.backends.open_clip_tower import OpenClip, load_open_clip
    from holdfast.multimodal.backends.small import SmallTwoTowerModel
    from holdfast.multimodal.backends.transformers_clip import TransformersClip, load_clip
    from holdfast.multimodal.backends.words import WordTokenizer
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "MAX_SCALE",
    "ExplainedLayer",
    "OpenClip",
    "SmallTwoTowerModel",
    "Trained",
    "TransformersClip",
    "TwoTowerModel",
    "WordTokenizer",
    "load_clip",
    "load_open_clip",
]
