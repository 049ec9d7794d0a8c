"""Convex Polytope: poisons in whose convex hull, in feature space, the target lies.

Zhu et al., "Transferable Clean-Label Poisoning Attacks on Deep Neural Nets" (ICML 2019). Before each step the
combination of the poisons that is nearest to the target is found, then the poisons are moved so that it comes nearer.
The predecessor of Bullseye Polytope, and a control here: a target anywhere in the hull, often at its border, is
weaker than one in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.poisoning.attacks.bullseye_polytope import FEATURE_BREWING
from holdfast.poisoning.attacks.crafting.aims import Targets
from holdfast.poisoning.attacks.crafting.bases import check_bases
from holdfast.poisoning.attacks.crafting.brewing import Brewing, Progress, brew
from holdfast.poisoning.attacks.crafting.objectives import convex_polytope
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.crafting.record import poisoned_set
from holdfast.poisoning.attacks.crafting.surrogates import (
    Surrogates,
    as_list,
    features_at,
    in_evaluation,
    shared_device,
)
from holdfast.poisoning.attacks.simplex import nearest_combination


@dataclass(frozen=True)
class ConvexPolytope:
    """The attack.

    Attributes:
        brewing: how perturbations are searched.
        head: name of the surrogates' head where it can't be found.
    """

    brewing: Brewing = FEATURE_BREWING
    head: str | None = None

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
        """Bring the target into the hull of the poisons' features.

        Args:
            surrogates: networks whose features are looked at, each with coefficients of its own.
            train: the clean training set, in pixels.
            targets: one target.
            bases: positions of training images of the adversarial class.
            seed: names the random streams.
            progress: told of every step.

        Returns:
            The poisoned set.
        """
        images = check_bases(train, bases, targets.adversarial_class)
        models = as_list(surrogates)
        device = shared_device(models)
        target = targets.one("Convex Polytope").to(device)
        coefficients: list[Tensor | None] = [None] * len(models)

        def start_over(step: int, _: Tensor) -> None:
            if step == 0:
                coefficients[:] = [None] * len(models)

        with in_evaluation(models):
            with torch.no_grad():
                goals = [features_at(model, target, head=self.head)[0][0] for model in models]

            def objective(poisons: Tensor, _: torch.Generator) -> Tensor:
                terms = list[Tensor]()
                for number, (model, goal) in enumerate(zip(models, goals, strict=True)):
                    features = features_at(model, poisons, head=self.head)[0]
                    nearest = nearest_combination(features, goal, coefficients[number])
                    coefficients[number] = nearest
                    terms.append(convex_polytope(features, goal, nearest))
                return torch.stack(terms).mean()

            brewed = brew(
                objective, images.to(device), self.brewing, seed=seed, progress=progress, before_step=start_over
            )
        return poisoned_set(self, train, bases, brewed, aim=targets, epsilon=self.brewing.epsilon, seed=seed)
