"""One small interface for every two-tower model: features, projections into the joint space, and a scale.

An image goes through an encoder, whose output the projection maps into the joint space, where embeddings have unit
length; a text does the same on its side. Fine-tuning trains little more than the projections, so the cut between
encoder and projection is part of the interface: what lies before it can be computed once and kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError, nearest
from holdfast.multimodal.backends.preprocessing import Preprocessing

#: What is trained. ``projection_strict``: the last linear map of each side and the scale. ``projection``:
#: the whole image projection, which for CLIP's ResNets is the attention pool. ``release``: also the text tower outside
#: of its blocks, as the authors' program does. ``full``: everything.
Trained = Literal["projection_strict", "projection", "release", "full"]

#: Cosines are multiplied by at most this much; CLIP's own limit.
MAX_SCALE = 100.0


@dataclass(frozen=True)
class ExplainedLayer:
    """Which part of the image tower GradCAM explains.

    Attributes:
        name: the part in ``model.named_modules()``.
        grid: rows and columns of the patches, where its output is one class token and then patches; None for maps.
        batch_first: whether tokens come as (images, tokens, channels) and not as (tokens, images, channels).
    """

    name: str
    grid: tuple[int, int] | None = None
    batch_first: bool = True


class TwoTowerModel(nn.Module, ABC):
    """An image encoder and a text encoder with their projections into one space.

    Attributes:
        preprocessing: what is done to an image before `image_features`.
        explained: what GradCAM explains.
    """

    preprocessing: Preprocessing
    explained: ExplainedLayer

    @property
    @abstractmethod
    def image_projection(self) -> nn.Module:
        """Maps `image_features` into the joint space."""

    @property
    @abstractmethod
    def text_projection(self) -> nn.Module:
        """Maps `text_features` into the joint space."""

    @property
    @abstractmethod
    def logit_scale(self) -> nn.Parameter:
        """Logarithm of what cosines are multiplied by."""

    @abstractmethod
    def image_features(self, images: Tensor) -> Tensor:
        """What the image projection reads, of preprocessed images (n, 3, height, width)."""

    @abstractmethod
    def text_features(self, tokens: Tensor) -> Tensor:
        """What the text projection reads, of token ids (n, tokens)."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids of texts, int64 of shape (n, tokens)."""

    @abstractmethod
    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """Token and position embeddings and the last norm of the text tower: what ``release`` trains beyond."""

    def strict_image_parameters(self) -> list[nn.Parameter]:
        """What ``projection_strict`` trains of the image side."""
        return list(self.image_projection.parameters())

    def encode_image(self, images: Tensor) -> Tensor:
        """Embeddings of images, float32 of unit length, (n, width)."""
        return F.normalize(self.image_projection(self.image_features(images)).float(), dim=-1)

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Embeddings of tokenised texts, float32 of unit length, (n, width)."""
        return F.normalize(self.text_projection(self.text_features(tokens)).float(), dim=-1)

    def scale(self) -> Tensor:
        """What cosines are multiplied by; the parameter is first cut to `MAX_SCALE`, as CLIP does after each step."""
        with torch.no_grad():
            self.logit_scale.clamp_(max=math.log(MAX_SCALE))
        return self.logit_scale.exp()

    def trained_parameters(self, trained: Trained) -> list[nn.Parameter]:
        """The parameters that a mode trains.

        Args:
            trained: the mode.

        Returns:
            Each once.

        Raises:
            ConfigError: if there is no such mode.
        """
        if trained not in get_args(Trained):
            raise ConfigError(
                f"there is no part {trained!r} of a two-tower model to train" + nearest(trained, get_args(Trained))
            )
        if trained == "full":
            return list(self.parameters())
        strict = trained == "projection_strict"
        parameters = self.strict_image_parameters() if strict else list(self.image_projection.parameters())
        parameters += self.text_projection.parameters()
        if trained == "release":
            parameters += self.text_parameters_outside_blocks()
        return [*parameters, self.logit_scale]


class ProjectedTwoTowerModel(TwoTowerModel):
    """A model that keeps its projections and its scale itself.

    Attributes:
        from_image: the image projection.
        from_text: the text projection.
        log_scale: the logarithm of the scale.
    """

    from_image: nn.Module
    from_text: nn.Module
    log_scale: nn.Parameter

    @property
    def image_projection(self) -> nn.Module:
        """`from_image`."""
        return self.from_image

    @property
    def text_projection(self) -> nn.Module:
        """`from_text`."""
        return self.from_text

    @property
    def logit_scale(self) -> nn.Parameter:
        """`log_scale`."""
        return self.log_scale
