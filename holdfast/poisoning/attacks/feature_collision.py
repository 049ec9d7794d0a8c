"""Feature Collision: poisons that look like their bases and have the target's features.

Shafahi et al., "Poison Frogs! Targeted Clean-Label Poisoning Attacks on Neural Networks" (NeurIPS 2018,
https://arxiv.org/abs/1804.00792). Each poison minimises ||f(x) - f(t)||^2 + beta ||x - b||^2 by forward-backward
splitting, from a base with the target faintly on it. The backward step is the proximal one of that objective; the
paper's lacks a factor 2, as if beta were half. The budget is soft, which EPIC's experiments keep because a hard one
cripples the attack; the largest change is in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Progress, project, quantise
from holdfast.poisoning.attacks.crafting.objectives import feature_collision
from holdfast.poisoning.attacks.crafting.surrogates import features_at
from holdfast.poisoning.attacks.crafting.targeted import Crafting, TargetedAttack


@dataclass(frozen=True)
class FeatureCollision(TargetedAttack):
    """The attack.

    Attributes:
        beta: weight of ||x - b||^2; 0.1 for pixels, 4 for normalised inputs.
        step_size: of the gradient steps at the start. A poison whose objective would rise stays and goes on with a
            fifth.
        steps: at most.
        tolerance: stop when all poisons move by less, relative to their size.
        watermark: opacity of the target on the bases at the start.
        epsilon: a hard budget in the place of the soft one.
        head: name of the surrogates' head where it can't be found.
    """

    beta: float = 0.1
    step_size: float = 0.001
    steps: int = 120
    tolerance: float = 1e-5
    watermark: float = 0.3
    epsilon: float | None = None
    head: str | None = None

    def __post_init__(self) -> None:
        if not self.beta >= 0:
            raise ConfigError(f"beta is {self.beta}; give 0 or more")
        if not self.step_size > 0 or self.steps < 1:
            raise ConfigError(f"{self.steps} steps of {self.step_size} lead nowhere; give at least one positive step")
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark is {self.watermark}; give an opacity from 0 to below 1")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ConfigError(f"epsilon is {self.epsilon}; give a positive budget, or none for the soft one")

    @property
    def budget(self) -> float | None:
        """The hard budget, if any; ``largest`` of a poisoned set says how far the soft one was stretched."""
        return self.epsilon

    def search(self, work: Crafting) -> Brewed:
        """Move every poison's features to those of the one target, from one start; nothing is drawn at random."""
        target = work.targets.one("Feature Collision").to(work.device)
        return self._collide(work.models, work.images, target, work.progress)

    def _collide(self, models: Sequence[nn.Module], bases: Tensor, target: Tensor, progress: Progress | None) -> Brewed:
        with torch.no_grad():
            goals = [features_at(model, target, head=self.head)[0] for model in models]

        def collisions(poisons: Tensor) -> Tensor:
            terms = [
                feature_collision(features_at(model, poisons, head=self.head)[0], goal)
                for model, goal in zip(models, goals, strict=True)
            ]
            return torch.stack(terms).mean(0)

        def objectives(poisons: Tensor, distances: Tensor) -> Tensor:
            if self.epsilon is not None:
                return distances
            return distances + self.beta * (poisons - bases).flatten(1).square().sum(1)

        at = self._near(bases + self.watermark * (target - bases), bases)
        sizes = torch.full((len(bases), 1, 1, 1), self.step_size, device=bases.device)
        trace = list[float]()
        for step in range(self.steps):
            watched = at.detach().requires_grad_()
            with torch.enable_grad():
                distances = collisions(watched)
                (gradient,) = torch.autograd.grad(distances.sum(), watched)
            now = objectives(at, distances.detach())
            trace.append(float(now.mean()))
            if not gradient.isfinite().all():
                raise FloatingPointError(f"the gradient of the feature distance is not finite at step {step}")
            if progress is not None:
                progress(0, step, trace[-1])
            moved = self._backward(at - sizes * gradient, bases, sizes)
            with torch.no_grad():
                better = (objectives(moved, collisions(moved)) <= now).view(-1, 1, 1, 1)
            change = torch.linalg.vector_norm(moved - at) / torch.linalg.vector_norm(moved)
            at = torch.where(better, moved, at)
            sizes = torch.where(better, sizes, 0.2 * sizes)
            if change < self.tolerance:
                break
        perturbations = quantise(at - bases, bases, self.epsilon)
        with torch.no_grad():
            final = objectives(bases + perturbations, collisions(bases + perturbations)).mean()
        return Brewed(perturbations, float(final), torch.tensor(trace))

    def _backward(self, at: Tensor, bases: Tensor, sizes: Tensor) -> Tensor:
        """The proximal step towards the bases; with a hard budget, the projection."""
        if self.epsilon is not None:
            return self._near(at, bases)
        pull = 2 * sizes * self.beta
        return ((at + pull * bases) / (1 + pull)).clamp(0, 1)

    def _near(self, at: Tensor, bases: Tensor) -> Tensor:
        return at if self.epsilon is None else bases + project(at - bases, bases, self.epsilon)
