"""Gradient Matching: poisons whose training gradient is the one that would fit the target to the adversarial class.

Geiping et al., "Witches' Brew: Industrial Scale Data Poisoning via Gradient Matching" (ICLR 2021,
https://arxiv.org/abs/2009.02276). The main attack on training from scratch: whoever descends on the poisons descends on
the target's adversarial loss too. EPIC rests on the same condition (eq. 4.3 of the dissertation,
https://escholarship.org/uc/item/0399v1qw). With a surrogate whose extractor is frozen it attacks transfer learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from holdfast.data.transforms import Compose, RandomFlip
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.augment import RandomShift
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Brewing, Objective, brew
from holdfast.poisoning.attacks.crafting.objectives import misalignment, parameter_gradient, scatter
from holdfast.poisoning.attacks.crafting.targeted import Crafting, TargetedAttack
from holdfast.training.policy import Augmentation

_CHUNK = 512

#: What published attacks on 32 x 32 images look through.
SHIFT_AND_FLIP = Compose((RandomShift(), RandomFlip()))


@dataclass(frozen=True)
class GradientMatching(TargetedAttack):
    """The attack.

    Attributes:
        brewing: how perturbations are searched; 8 restarts of 250 steps of signed Adam.
        augment: through which poisons are looked at, anew in each step; None looks at them as they are.
        gathering: weight of the mean of 1 - cos between the poisons' own p - y, for an attacker who knows that EPIC
            drops what is alone.
    """

    brewing: Brewing = field(default_factory=lambda: Brewing(restarts=8))
    augment: Augmentation | None = SHIFT_AND_FLIP
    gathering: float = 0.0

    def __post_init__(self) -> None:
        if not self.gathering >= 0:
            raise ConfigError(f"gathering is {self.gathering}; give 0 or more")

    def search(self, work: Crafting) -> Brewed:
        """Turn the gradient of the poisons to that of the targets under the adversarial label."""
        adversarial, shown = work.targets.adversarial_class, work.targets.images.to(work.device)
        wanted = [adversarial_gradient(model, shown, adversarial) for model in work.models]
        objective = self.objective(work.models, wanted, work.train.labels[work.bases].to(work.device))
        return brew(objective, work.images, self.brewing, seed=work.seed, progress=work.progress)

    def objective(self, models: Sequence[nn.Module], wanted: Sequence[Tensor], labels: Tensor) -> Objective:
        """The mean over networks of 1 - cos(gradient of the poisons, wanted gradient).

        Args:
            models: the surrogates, in evaluation mode while the objective is used.
            wanted: a gradient per surrogate.
            labels: of the poisons.

        Returns:
            A function of the poisons and a random stream.
        """

        def objective(poisons: Tensor, stream: torch.Generator) -> Tensor:
            augmented = poisons if self.augment is None else self.augment(poisons, stream)
            terms = list[Tensor]()
            for model, goal in zip(models, wanted, strict=True):
                gradient, logits = parameter_gradient(model, augmented, labels, create_graph=True)
                term = misalignment(gradient, goal)
                terms.append(term + self.gathering * scatter(logits, labels) if self.gathering else term)
            return torch.stack(terms).mean()

        return objective


def adversarial_gradient(model: nn.Module, images: Tensor, adversarial_class: int) -> Tensor:
    """The gradient of the mean loss of images under the adversarial label, a chunk at a time.

    Args:
        model: in evaluation mode.
        images: targets, or patched images of a source class.
        adversarial_class: the label.

    Returns:
        Shape (trained parameters,).
    """
    total: Tensor | None = None
    for chunk in torch.split(images, _CHUNK):
        labels = torch.full((len(chunk),), adversarial_class, device=chunk.device)
        gradient = parameter_gradient(model, chunk, labels)[0] * (len(chunk) / len(images))
        total = gradient if total is None else total + gradient
    assert total is not None
    return total.detach()
