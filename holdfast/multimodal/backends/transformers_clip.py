"""CLIP from the transformers library: any model of that architecture, by its name on the hub or from a folder.

Only safetensors are read and code that comes with a model is never run. The library has CLIP's vision transformers, not
its ResNets: those are in `holdfast.multimodal.backends.open_clip_tower`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from holdfast.data.readers.texts import load_tokenizer
from holdfast.errors import MissingDependencyError
from holdfast.models.networks.pretrained import load_pretrained
from holdfast.multimodal.backends.base import ExplainedLayer, TwoTowerModel
from holdfast.multimodal.backends.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing


class TransformersClip(TwoTowerModel):
    """A `transformers.CLIPModel` with its tokenizer.

    Args:
        model: the model; half precision becomes single, since steps are taken on the weights themselves.
        tokenizer: the tokenizer.
        preprocessing: what is done to images.
    """

    def __init__(self, model: Any, tokenizer: Any, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.model = model.float()
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        vision = model.config.vision_config
        side = vision.image_size // vision.patch_size
        last = f"model.vision_model.encoder.layers.{vision.num_hidden_layers - 1}.layer_norm1"
        self.explained = ExplainedLayer(last, (side, side))
        self.eval()

    @property
    def image_projection(self) -> nn.Module:
        """The linear map after the class token's last norm."""
        projection: nn.Module = self.model.visual_projection
        return projection

    @property
    def text_projection(self) -> nn.Module:
        """The linear map after the end token's last norm."""
        projection: nn.Module = self.model.text_projection
        return projection

    @property
    def logit_scale(self) -> nn.Parameter:
        """The checkpoint's, about log 100 for the public ones."""
        scale: nn.Parameter = self.model.logit_scale
        return scale

    def image_features(self, images: Tensor) -> Tensor:
        """The class token after its last norm."""
        features: Tensor = self.model.vision_model(pixel_values=images).pooler_output
        return features

    def text_features(self, tokens: Tensor) -> Tensor:
        """The end token after its last norm; attention is causal, so what pads the text behind it doesn't matter."""
        features: Tensor = self.model.text_model(input_ids=tokens).pooler_output
        return features

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids, padded to the model's length."""
        length = self.model.config.text_config.max_position_embeddings
        batch = self.tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="pt"
        )
        tokens: Tensor = batch["input_ids"]
        return tokens

    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """Token and position embeddings and the last norm."""
        return [parameter for name, parameter in self.model.text_model.named_parameters() if "encoder." not in name]


def load_clip(source: Path | str) -> TransformersClip:
    """CLIP by name or from a folder.

    Args:
        source: a name on the hub, such as ``openai/clip-vit-large-patch14-336``, or a folder with ``config.json``,
            ``model.safetensors`` and the tokenizer's files.

    Returns:
        The model, in evaluation mode.

    Raises:
        MissingDependencyError: if transformers isn't installed.
        ConfigError: if there is no such source, or no network to fetch it.
        CheckpointError: if its weights belong to another network.
    """
    try:
        from transformers import CLIPModel  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError("CLIP needs transformers; pip install 'holdfast[multimodal]'") from error
    model = load_pretrained(CLIPModel, source)
    return TransformersClip(model, load_tokenizer(str(source)), _preprocessing(source, model.config.vision_config))


def _preprocessing(source: Path | str, vision: Any) -> Preprocessing:
    """As the model's own file says; CLIP's published constants where it has none."""
    from transformers.image_processing_utils import ImageProcessingMixin  # noqa: PLC0415 - optional

    try:
        settings, _ = ImageProcessingMixin.get_image_processor_dict(source)
    except OSError:
        settings = {}
    mean, std = settings.get("image_mean", CLIP_MEAN), settings.get("image_std", CLIP_STD)
    return Preprocessing(vision.image_size, tuple(mean), tuple(std))
