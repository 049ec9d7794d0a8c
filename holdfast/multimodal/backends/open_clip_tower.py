"""CLIP from the open_clip library, which has the ResNets too: RN50 and ViT-L/14@336px are the paper's models.

The library needs torchvision, which holdfast itself never imports, so this backend stays thin: it takes the model's
projections out for the moment in which features are computed, and leaves it otherwise as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.multimodal.backends.base import ExplainedLayer, TwoTowerModel
from holdfast.multimodal.backends.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing


class SharedProjection(nn.Module):
    """Multiplies by a matrix that belongs to another module.

    Args:
        matrix: (features, width).
    """

    def __init__(self, matrix: nn.Parameter) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (n, width) of features (n, features)."""
        return features @ self.matrix


class OpenClip(TwoTowerModel):
    """An `open_clip.CLIP` with its tokenizer.

    Args:
        model: a model whose image tower is CLIP's ResNet or vision transformer.
        tokenizer: turns texts into token ids.

    Raises:
        ConfigError: if the towers are others.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        visual: Any = getattr(model, "visual", None)
        self._pooled = hasattr(visual, "attnpool")
        if (not self._pooled and getattr(visual, "proj", None) is None) or not hasattr(model, "text_projection"):
            raise ConfigError(
                f"the towers of this {type(model).__name__} are not CLIP's own; give a ResNet or a ViT of open_clip, "
                "such as RN50 or ViT-L-14-336"
            )
        self.model = model.float()
        self.tokenizer = tokenizer
        size = visual.image_size if isinstance(visual.image_size, int) else visual.image_size[0]
        mean, std = getattr(visual, "image_mean", None), getattr(visual, "image_std", None)
        self.preprocessing = Preprocessing(size, tuple(mean or CLIP_MEAN), tuple(std or CLIP_STD))
        if self._pooled:
            self.explained = ExplainedLayer("model.visual.layer4")
        else:
            blocks = visual.transformer.resblocks
            in_order = bool(getattr(visual.transformer, "batch_first", False))
            name = f"model.visual.transformer.resblocks.{len(blocks) - 1}.ln_1"
            self.explained = ExplainedLayer(name, tuple(visual.grid_size), in_order)
        self.eval()

    @property
    def image_projection(self) -> nn.Module:
        """The attention pool of a ResNet, the last matrix of a vision transformer."""
        visual = self.model.visual
        return visual.attnpool if self._pooled else SharedProjection(visual.proj)

    @property
    def text_projection(self) -> nn.Module:
        """The last matrix of the text tower."""
        projection = self.model.text_projection
        return projection if isinstance(projection, nn.Module) else SharedProjection(projection)

    @property
    def logit_scale(self) -> nn.Parameter:
        """The checkpoint's, about log 100 for the public ones."""
        scale: nn.Parameter = self.model.logit_scale
        return scale

    def strict_image_parameters(self) -> list[nn.Parameter]:
        """Of an attention pool only its output map."""
        part = self.model.visual.attnpool.c_proj if self._pooled else self.image_projection
        return list(part.parameters())

    def image_features(self, images: Tensor) -> Tensor:
        """Feature maps of a ResNet's last stage (n, channels, rows, columns); the class token of a transformer."""
        left_out = ("attnpool", nn.Identity()) if self._pooled else ("proj", None)
        with _replaced(self.model.visual, *left_out):
            features: Tensor = self.model.encode_image(images)
        return features

    def text_features(self, tokens: Tensor) -> Tensor:
        """The end token after its last norm."""
        with _replaced(self.model, "text_projection", None):
            features: Tensor = self.model.encode_text(tokens)
        return features

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids, padded to the model's length."""
        tokens: Tensor = self.tokenizer(list(texts))
        return tokens

    def text_parameters_outside_blocks(self) -> list[nn.Parameter]:
        """Token and position embeddings and the last norm."""
        model = self.model
        return [*model.token_embedding.parameters(), model.positional_embedding, *model.ln_final.parameters()]


def load_open_clip(name: str, weights: Path | str) -> OpenClip:
    """A model of open_clip with public weights.

    Args:
        name: the architecture, such as ``RN50`` or ``ViT-L-14-336``.
        weights: a tag, such as ``openai``, that the library fetches; or a safetensors file.

    Returns:
        The model, in evaluation mode.

    Raises:
        MissingDependencyError: if open_clip, or torchvision that it needs, can't be imported.
        ConfigError: if the weights can't be had, or the file isn't one of safetensors.
    """
    try:
        import open_clip  # noqa: PLC0415 - optional
    except (ImportError, RuntimeError) as error:  # a torchvision that doesn't fit torch fails with a RuntimeError
        raise MissingDependencyError(
            f"open_clip can't be imported ({error}); pip install 'holdfast[open-clip]' with a torchvision that fits"
        ) from error
    if Path(weights).is_file() and Path(weights).suffix != ".safetensors":
        raise ConfigError(f"{weights} could execute code when it is loaded; give the weights as safetensors")
    try:
        model = open_clip.create_model(name, pretrained=str(weights), precision="fp32")
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"open_clip can't load {name!r} with weights {str(weights)!r} ({error}); "
            "open_clip.list_pretrained() names those there are"
        ) from error
    return OpenClip(model, open_clip.get_tokenizer(name))


@contextmanager
def _replaced(module: nn.Module, name: str, stand_in: nn.Module | None) -> Iterator[None]:
    """The module with another part under `name` inside the block."""
    part = getattr(module, name)
    setattr(module, name, stand_in)
    try:
        yield
    finally:
        setattr(module, name, part)
