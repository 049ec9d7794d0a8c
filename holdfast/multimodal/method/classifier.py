"""A two-tower model as a classifier: the logits of an image are its cosines with the ensembled prompts of the classes.

It looks like any other model to `holdfast.training`, so every method and every report that takes logits takes it too.
The class directions are made anew in every pass, from the prompts' current embeddings: training moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.tasks.prompts import Family, Wording, ensemble


class PromptClassifier(nn.Module):
    """Zero-shot logits of a two-tower model that may be trained.

    The towers always run in evaluation mode, in training too: batch norm of a frozen encoder must not drift.

    Args:
        model: any two-tower model.
        prompts: what the text tower takes, by family: (entries, templates, tokens), of ``pairs``
            (classes, values, templates, tokens).
    """

    def __init__(self, model: TwoTowerModel, prompts: Mapping[Family, Tensor]) -> None:
        super().__init__()
        self.tower = model.eval()
        self.families = tuple(prompts)
        for family, inputs in prompts.items():
            self.register_buffer(f"{family}_inputs", inputs, persistent=False)

    @classmethod
    def of(cls, model: TwoTowerModel, wording: Wording) -> PromptClassifier:
        """The classifier for a task said in words; its prompts lie where the model does."""
        device = model.logit_scale.device
        return cls(model, {family: tokens.to(device) for family, tokens in wording.tokens(model).items()})

    def train(self, mode: bool = True) -> PromptClassifier:
        """Set the mode of everything but the towers."""
        super().train(mode)
        self.tower.eval()
        return self

    def inputs(self, family: Family) -> Tensor:
        """What the text tower takes for the prompts of a family."""
        if family not in self.families:
            raise ConfigError(
                f"the wording has nothing for the prompts {family!r}; give it spurious_words, and attribute_phrases "
                "for the release's spurious image loss"
            )
        return cast(Tensor, getattr(self, f"{family}_inputs"))

    def prompts(self, family: Family) -> Tensor:
        """Embeddings of the prompts of a family, unit length: the shape of the inputs with the width at the end."""
        inputs = self.inputs(family)
        return self.tower.encode_text(inputs.flatten(0, -2)).reshape(*inputs.shape[:-1], -1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (n, classes)."""
        weights = ensemble(self.prompts("classes"))
        return self.tower.scale() * self.tower.encode_image(images) @ weights.T
