"""Two-tower models by the names that the command line and the experiments use.

=================================  ===================================================================================
``shapes``                         the small model that learned the shortcut of the rendered shapes; needs no download
``emoji``                          EfficientNet-Lite0 and MiniLM from their packages, joined on captioned emoji
``open_clip:RN50:openai``          a model of open_clip and the tag, or the safetensors file, of its weights
anything else                      CLIP of the transformers library, by its name on the hub or from a folder
=================================  ===================================================================================
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.multimodal.backends import TwoTowerModel, load_clip, load_open_clip
from holdfast.multimodal.backends.cached_weights import Progress
from holdfast.multimodal.tasks.emoji.tower import emoji_tower
from holdfast.multimodal.tasks.shapes.tower import shapes_tower

_OPEN_CLIP = "open_clip:"


def load_tower(name: str, root: Path, *, seed: int = 0, progress: Progress | None = None) -> TwoTowerModel:
    """A two-tower model by name.

    Args:
        name: see the table above.
        root: the data root, below which towers that are made here are kept.
        seed: of a model that is made here.
        progress: told about each epoch where one is trained.

    Returns:
        The model, in evaluation mode.

    Raises:
        ConfigError: if there is no such model.
    """
    if name == "shapes":
        return shapes_tower(root / "towers", seed, progress=progress)
    if name == "emoji":
        return emoji_tower(root / "towers", seed)
    if name.startswith(_OPEN_CLIP):
        model, _, weights = name.removeprefix(_OPEN_CLIP).partition(":")
        if not model or not weights:
            raise ConfigError(
                f"the tower {name!r} lacks its weights; write open_clip:MODEL:WEIGHTS, as in open_clip:RN50:openai"
            )
        return load_open_clip(model, weights)
    return load_clip(name)
