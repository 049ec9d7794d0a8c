"""A two-tower model for a CPU: a ConvNet or a small ViT beside a two-layer text tower with a tokenizer of whole words.

It is the model of experiments on a CPU, trained in minutes on rendered shapes, and what tests and
demonstrations run on where no public weights can be had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.base import ExplainedLayer, ProjectedTwoTowerModel
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.backends.words import END, PAD, WordTokenizer

_HEADS = 4


class Block(nn.Module):
    """Attention, then two linear layers, each behind a norm and beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, _HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Tokens (n, tokens, width); True in `padding` is not looked at."""
        normed = self.norm1(tokens)
        tokens = tokens + self.attention(normed, normed, normed, key_padding_mask=padding, need_weights=False)[0]
        mixed: Tensor = tokens + self.mlp(self.norm2(tokens))
        return mixed


class ConvTower(nn.Module):
    """Five convolutions with batch norm, then the mean over all places and over each quarter: 480 features."""

    features = 480

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for wider, stride in ((24, 1), (48, 2), (48, 1), (96, 2), (96, 1)):
            layers += [nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
            channels = wider
        self.maps = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, 480) of images (n, 3, height, width)."""
        maps = self.maps(images)
        return torch.cat([maps.mean((2, 3)), F.adaptive_avg_pool2d(maps, 2).flatten(1)], 1)


class VitTower(nn.Module):
    """Patches, a class token and two blocks: a transformer that still learns something in minutes."""

    features = 64

    def __init__(self, image_size: int, patch: int) -> None:
        super().__init__()
        side = image_size // patch
        self.patches = nn.Conv2d(3, self.features, patch, patch)
        self.class_token = nn.Parameter(torch.randn(self.features) * 0.02)
        self.positions = nn.Parameter(torch.randn(side * side + 1, self.features) * 0.02)
        self.blocks = nn.ModuleList([Block(self.features), Block(self.features)])
        self.norm = nn.LayerNorm(self.features)

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, 64) of images (n, 3, height, width)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(patches), 1, -1), patches], 1) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        features: Tensor = self.norm(tokens[:, 0])
        return features


class TextTower(nn.Module):
    """Word and position embeddings, two blocks, and what they make of the end mark: 64 features."""

    features = 64

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, self.features)
        self.positions = nn.Parameter(torch.randn(length, self.features) * 0.02)
        self.blocks = nn.ModuleList([Block(self.features), Block(self.features)])
        self.norm = nn.LayerNorm(self.features)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features (n, 64) of token ids (n, length)."""
        hidden = self.words(tokens) + self.positions
        for block in self.blocks:
            hidden = block(hidden, tokens == PAD)
        ends = (tokens == END).int().argmax(1)
        read: Tensor = self.norm(hidden[torch.arange(len(tokens), device=tokens.device), ends])
        return read


class SmallTwoTowerModel(ProjectedTwoTowerModel):
    """A small two-tower model; its weights start at random.

    Args:
        tokenizer: knows the words of every text that will be asked about.
        image_tower: a ConvNet, or a transformer over patches.
        image_size: side of the images.
        width: of the joint space.
        patch: side of a patch of the transformer.
    """

    def __init__(
        self,
        tokenizer: WordTokenizer,
        image_tower: Literal["conv", "vit"] = "conv",
        *,
        image_size: int = 24,
        width: int = 48,
        patch: int = 4,
    ) -> None:
        super().__init__()
        if image_tower == "vit" and image_size % patch:
            raise ConfigError(f"patches of {patch} don't fill an image of {image_size}; give a patch that divides it")
        self.tokenizer = tokenizer
        self.preprocessing = Preprocessing(image_size, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
        self.image_tower = ConvTower() if image_tower == "conv" else VitTower(image_size, patch)
        self.text_tower = TextTower(tokenizer.size, tokenizer.length)
        self.from_image = nn.Linear(self.image_tower.features, width, bias=False)
        self.from_text = nn.Linear(self.text_tower.features, width, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        if image_tower == "conv":
            self.explained = ExplainedLayer("image_tower.maps")
        else:
            self.explained = ExplainedLayer("image_tower.blocks.1.norm1", (image_size // patch, image_size // patch))

    def image_features(self, images: Tensor) -> Tensor:
        """480 features of the ConvNet, 64 of the transformer."""
        features: Tensor = self.image_tower(images)
        return features

    def text_features(self, tokens: Tensor) -> Tensor:
        """64 features."""
        features: Tensor = self.text_tower(tokens)
        return features

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Numbers of the words."""
        return self.tokenizer(texts)

    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """Word and position embeddings and the last norm."""
        return [parameter for name, parameter in self.text_tower.named_parameters() if not name.startswith("blocks.")]
