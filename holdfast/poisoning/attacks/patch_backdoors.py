"""The two older backdoors of the public benchmark, as controls: from scratch both are expected to fail.

The clean-label backdoor (Turner, Tsipras and Madry 2018, https://arxiv.org/abs/1912.02771) makes bases hard by
adversarial noise, so that the patch on them is the easier thing to learn. The hidden trigger (Saha, Subramanya and
Pirsiavash 2020, https://arxiv.org/abs/1910.00033) never shows the patch: it moves the features of bases to those of
patched images of the source class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.modes import evaluation_mode
from holdfast.poisoning.attacks.crafting.aims import Backdoor
from holdfast.poisoning.attacks.crafting.bases import check_bases
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Progress, project, quantise
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.crafting.record import poisoned_set
from holdfast.poisoning.attacks.crafting.surrogates import (
    Surrogates,
    as_list,
    features_at,
    shared_device,
)
from holdfast.primitives.pgd import Pgd
from holdfast.streams import torch_stream

#: The published noise.
HARDENING = Pgd(epsilon=8 / 255, steps=20, step_size=2 / 255)


@dataclass(frozen=True)
class CleanLabelBackdoor:
    """Adversarial noise under a patch, both within the budget.

    Attributes:
        noise: the attack that makes bases hard; its budget is that of the poisons.
    """

    noise: Pgd = HARDENING

    def craft(
        self,
        surrogates: Surrogates,
        train: Examples,
        backdoor: Backdoor,
        bases: Tensor,
        *,
        seed: int = 0,
    ) -> PoisonedSet:
        """Make bases hard and put the patch on them.

        Args:
            surrogates: the first one's loss is raised.
            train: the clean training set, in pixels.
            backdoor: patch and classes; the published place is the bottom right corner.
            bases: positions of training images of the adversarial class.
            seed: for patches at random places.

        Returns:
            The poisoned set.
        """
        images = check_bases(train, bases, backdoor.adversarial_class)
        model = as_list(surrogates)[0]
        device = shared_device([model])
        hard = self.noise(model, images.to(device), train.labels[bases].to(device)).cpu()
        patched = backdoor.paste(hard, torch_stream(seed, "clean-label"))
        perturbations = quantise(project(patched - images, images, self.noise.epsilon), images, self.noise.epsilon)
        brewed = Brewed(perturbations, float("nan"), torch.zeros(0))
        return poisoned_set(self, train, bases, brewed, aim=backdoor, epsilon=self.noise.epsilon, seed=seed)


@dataclass(frozen=True)
class HiddenTrigger:
    """Bases with the features of patched images of the source class.

    Attributes:
        epsilon: the budget.
        steps: of gradient descent, at most.
        step_size: of each, times the gradient of the sum of squared distances.
        tolerance: stop when the mean squared distance is below.
        head: name of the surrogates' head where it can't be found.
    """

    epsilon: float = 8 / 255
    steps: int = 5000
    step_size: float = 1e-3
    tolerance: float = 1e-2
    head: str | None = None

    def __post_init__(self) -> None:
        if not self.epsilon > 0 or not self.step_size > 0 or self.steps < 1:
            raise ConfigError("give a positive epsilon and step_size, and at least 1 step")

    def craft(
        self,
        surrogates: Surrogates,
        train: Examples,
        backdoor: Backdoor,
        bases: Tensor,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> PoisonedSet:
        """Move the features of bases to those of as many patched images.

        Args:
            surrogates: the first one's features are used.
            train: the clean training set, in pixels.
            backdoor: patch and classes.
            bases: positions of training images of the adversarial class.
            seed: names the draws of source images and places.
            progress: told of every step, as restart 0.

        Returns:
            The poisoned set.
        """
        model = as_list(surrogates)[0]
        device = shared_device([model])
        images = check_bases(train, bases, backdoor.adversarial_class).to(device)
        source = (train.labels == backdoor.source_class).nonzero().flatten()
        if len(source) < len(bases):
            raise DataError(
                f"class {backdoor.source_class} has {len(source)} examples for {len(bases)} bases; each base is paired "
                "with one, so give fewer bases"
            )
        stream = torch_stream(seed, "hidden-trigger")
        drawn = source[torch.randperm(len(source), generator=stream)[: len(bases)]]
        with evaluation_mode(model):
            with torch.no_grad():
                patched = backdoor.paste(pixels_at(train, drawn), stream).to(device)
                goals = features_at(model, patched, head=self.head)[0]
            delta, trace = torch.zeros_like(images), list[float]()
            for step in range(self.steps):
                watched = delta.detach().requires_grad_()
                with torch.enable_grad():
                    features = features_at(model, images + watched, head=self.head)[0]
                    paired = goals[greedy_pairs(features.detach(), goals)]
                    total = (features - paired).square().sum()
                    (gradient,) = torch.autograd.grad(total, watched)
                trace.append(float(total.detach()) / len(bases))
                if not gradient.isfinite().all():
                    raise FloatingPointError(f"the gradient of the feature distance is not finite at step {step}")
                if progress is not None:
                    progress(0, step, trace[-1])
                if trace[-1] < self.tolerance:
                    break
                delta = project(delta - self.step_size * gradient, images, self.epsilon)
            perturbations = quantise(delta, images, self.epsilon)
            with torch.no_grad():
                features = features_at(model, images + perturbations, head=self.head)[0]
                final = (features - goals[greedy_pairs(features, goals)]).square().sum() / len(bases)
        brewed = Brewed(perturbations, float(final), torch.tensor(trace))
        return poisoned_set(self, train, bases, brewed, aim=backdoor, epsilon=self.epsilon, seed=seed)


def greedy_pairs(features: Tensor, goals: Tensor) -> Tensor:
    """Pair points one to one, the nearest pair first, then the nearest of what is left.

    Points that are nearest to each other are paired at once: no later choice could part them.

    Args:
        features: shape (p, d).
        goals: shape (p, d).

    Returns:
        The goal of each point, a permutation, int64 of shape (p,).
    """
    distances = torch.cdist(features, goals)
    rows = torch.arange(len(features), device=features.device)
    pairs = torch.full_like(rows, -1)
    while bool((pairs < 0).any()):
        nearest, nearest_back = distances.argmin(1), distances.argmin(0)
        mutual = (nearest_back[nearest] == rows) & (pairs < 0)
        pairs[mutual] = nearest[mutual]
        distances[mutual] = torch.inf
        distances[:, nearest[mutual]] = torch.inf
    return pairs
