"""Gradient Matching: poisons whose training gradient is the one that would fit the target to the adversarial class.

Geiping et al., "Witches' Brew: Industrial Scale Data Poisoning via Gradient Matching" (ICLR 2021). The main attack on
training from scratch: whoever descends on the poisons descends on the target's adversarial loss too. EPIC (Yang et al.
2022, eq. 4.3) rests on the same condition. With a surrogate whose extractor is frozen it attacks transfer learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.transforms import Compose, RandomFlip
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.aims import Targets
from holdfast.poisoning.attacks.crafting.augment import RandomShift
from holdfast.poisoning.attacks.crafting.bases import check_bases
from holdfast.poisoning.attacks.crafting.brewing import Brewing, Objective, Progress, brew
from holdfast.poisoning.attacks.crafting.objectives import misalignment, parameter_gradient, scatter
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.crafting.record import poisoned_set
from holdfast.poisoning.attacks.crafting.surrogates import Surrogates, as_list, in_evaluation, shared_device
from holdfast.training.policy import Augmentation

_CHUNK = 512

#: What published attacks on 32 x 32 images look through.
SHIFT_AND_FLIP = Compose((RandomShift(), RandomFlip()))


@dataclass(frozen=True)
class GradientMatching:
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

    def craft(
        self,
        surrogates: Surrogates,
        train: Examples,
        targets: Targets,
        bases: Tensor,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> PoisonedSet:
        """Brew poisons.

        Args:
            surrogates: networks trained on clean data; objectives are averaged over them.
            train: the clean training set, in pixels.
            targets: what shall be taken for the adversarial class.
            bases: positions of training images of that class.
            seed: names the random streams.
            progress: told of every step.

        Returns:
            The poisoned set.
        """
        images = check_bases(train, bases, targets.adversarial_class)
        models = as_list(surrogates)
        device = shared_device(models)
        shown = targets.images.to(device)
        with in_evaluation(models):
            wanted = [adversarial_gradient(model, shown, targets.adversarial_class) for model in models]
            objective = self.objective(models, wanted, train.labels[bases].to(device))
            brewed = brew(objective, images.to(device), self.brewing, seed=seed, progress=progress)
        return poisoned_set(self, train, bases, brewed, aim=targets, epsilon=self.brewing.epsilon, seed=seed)

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
            seen = poisons if self.augment is None else self.augment(poisons, stream)
            terms = list[Tensor]()
            for model, goal in zip(models, wanted, strict=True):
                gradient, logits = parameter_gradient(model, seen, labels, create_graph=True)
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
