"""What all attacks on given targets do around the search that is their own.

An attack is a frozen dataclass of its settings and says how perturbations are searched. `craft` is the same for all of
them: check the bases, put the surrogates in evaluation mode, search, and record the result under the attack's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.models.modes import evaluation_mode
from holdfast.poisoning.attacks.crafting.aims import Targets
from holdfast.poisoning.attacks.crafting.bases import check_bases
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Brewing, Progress
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.crafting.record import poisoned_set
from holdfast.poisoning.attacks.crafting.surrogates import Surrogates, as_list, shared_device


@dataclass(frozen=True, eq=False)
class Crafting:
    """What a search works on.

    Attributes:
        models: the surrogates, in evaluation mode.
        device: where they are.
        train: the clean training set, in pixels.
        targets: what shall be taken for the adversarial class.
        bases: positions of the training images to be perturbed, int64 of shape (p,).
        images: those images on the device, shape (p, channels, height, width).
        seed: names the random streams.
        progress: called at every step.
    """

    models: list[nn.Module]
    device: torch.device
    train: Examples
    targets: Targets
    bases: Tensor
    images: Tensor
    seed: int
    progress: Progress | None


class TargetedAttack(ABC):
    """Perturbs training images so that given targets are taken for the adversarial class."""

    brewing: Brewing

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
        """Make poisons.

        Args:
            surrogates: networks of the attacker's own, one or several on one device; objectives are averaged over them.
            train: the clean training set, in pixels.
            targets: what shall be taken for the adversarial class; attacks in feature space take one.
            bases: positions of training images of the adversarial class.
            seed: names the random streams.
            progress: called at every step with the restart, the step and the objective.

        Returns:
            The poisoned set.

        Raises:
            ConfigError: if there is no surrogate, they are on several devices, or bases are not of the adversarial
                class.
        """
        images = check_bases(train, bases, targets.adversarial_class)
        models = as_list(surrogates)
        device = shared_device(models)
        work = Crafting(models, device, train, targets, bases, images.to(device), seed, progress)
        with evaluation_mode(*models):
            brewed = self.search(work)
        return poisoned_set(self, train, bases, brewed, aim=targets, epsilon=self.budget, seed=seed)

    @property
    def budget(self) -> float | None:
        """The largest change of a pixel, where it is a hard limit."""
        return self.brewing.epsilon

    @abstractmethod
    def search(self, work: Crafting) -> Brewed:
        """The perturbations, searched in the attack's own way."""
