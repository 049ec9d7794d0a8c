"""Convex Polytope: poisons in whose convex hull, in feature space, the target lies.

Zhu et al., "Transferable Clean-Label Poisoning Attacks on Deep Neural Nets" (ICML 2019,
https://arxiv.org/abs/1905.05897). Before each step the combination of the poisons that is nearest to the target is
found, then the poisons are moved so that it comes nearer. The predecessor of Bullseye Polytope, and a control here: a
target anywhere in the hull, often at its border, is weaker than one in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.poisoning.attacks.bullseye_polytope import FEATURE_BREWING
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Brewing, brew
from holdfast.poisoning.attacks.crafting.objectives import convex_polytope
from holdfast.poisoning.attacks.crafting.surrogates import features_at
from holdfast.poisoning.attacks.crafting.targeted import Crafting, TargetedAttack
from holdfast.poisoning.attacks.simplex import nearest_combination


@dataclass(frozen=True)
class ConvexPolytope(TargetedAttack):
    """The attack.

    Attributes:
        brewing: how perturbations are searched.
        head: name of the surrogates' head where it can't be found.
    """

    brewing: Brewing = FEATURE_BREWING
    head: str | None = None

    def search(self, work: Crafting) -> Brewed:
        """Bring the one target into the hull of the poisons' features; each network has coefficients of its own."""
        models, target = work.models, work.targets.one("Convex Polytope").to(work.device)
        coefficients: list[Tensor | None] = [None] * len(models)

        def start_over(step: int, _: Tensor) -> None:
            if step == 0:
                coefficients[:] = [None] * len(models)

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

        return brew(
            objective, work.images, self.brewing, seed=work.seed, progress=work.progress, before_step=start_over
        )
