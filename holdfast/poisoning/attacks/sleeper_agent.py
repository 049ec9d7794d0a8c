"""Sleeper Agent: a backdoor learned from scratch whose patch never appears in the training data.

Souri et al., "Sleeper Agent: Scalable Hidden Trigger Backdoors for Neural Networks Trained from Scratch" (NeurIPS 2022,
https://arxiv.org/abs/2106.08970). Gradient matching, where the wanted gradient is that of many patched images of the
source class under the adversarial label. Three things make it work: bases with large gradients, patches at random
places, and surrogates that are trained again on the poisons as they are now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.modes import evaluation_mode
from holdfast.poisoning.attacks.crafting.aims import Backdoor
from holdfast.poisoning.attacks.crafting.bases import check_bases
from holdfast.poisoning.attacks.crafting.brewing import Brewing, Progress, brew, quantise
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.crafting.record import poisoned_set
from holdfast.poisoning.attacks.crafting.surrogates import Surrogates, as_list, shared_device
from holdfast.poisoning.attacks.gradient_matching import SHIFT_AND_FLIP, GradientMatching, adversarial_gradient
from holdfast.streams import torch_stream
from holdfast.training.policy import Augmentation

#: Trains fresh surrogates on the poisoned training set; is told how often it was asked before.
Retrain = Callable[[Examples, int], Surrogates]


@dataclass(frozen=True)
class SleeperAgent:
    """The attack.

    Attributes:
        brewing: how perturbations are searched.
        augment: through which poisons are looked at; None looks at them as they are.
        retrain_every: steps between trainings of new surrogates, where `craft` is given a way to train them.
        sources: most patched images whose gradient is matched.
    """

    brewing: Brewing = field(default_factory=lambda: Brewing(epsilon=16 / 255))
    augment: Augmentation | None = SHIFT_AND_FLIP
    retrain_every: int = 50
    sources: int = 5000

    def __post_init__(self) -> None:
        for name in ("retrain_every", "sources"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")

    def craft(
        self,
        surrogates: Surrogates,
        train: Examples,
        backdoor: Backdoor,
        bases: Tensor,
        *,
        retrain: Retrain | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> PoisonedSet:
        """Brew poisons.

        Args:
            surrogates: networks trained on clean data.
            train: the clean training set, in pixels.
            backdoor: patch, source class and adversarial class.
            bases: positions of training images of the adversarial class, see `steepest_bases`.
            retrain: trains new surrogates on the poisoned set; None keeps the first ones.
            seed: names the random streams.
            progress: told of every step.

        Returns:
            The poisoned set.
        """
        first = as_list(surrogates)
        device = shared_device(first)
        images = check_bases(train, bases, backdoor.adversarial_class).to(device)
        labels = train.labels[bases].to(device)
        source = (train.labels == backdoor.source_class).nonzero().flatten()
        if len(source) == 0:
            raise DataError(f"the training set has no example of the source class {backdoor.source_class}")
        drawn = torch.randperm(len(source), generator=torch_stream(seed, "sources"))[: self.sources]
        unpatched = pixels_at(train, source[drawn].sort().values)
        matching = GradientMatching(self.brewing, self.augment)
        objective = None

        def match_gradients_of(models: Sequence[nn.Module], trained: int) -> None:
            nonlocal objective
            patched = backdoor.paste(unpatched, torch_stream(seed, "patched", trained)).to(device)
            for model in models:
                model.eval()
            wanted = [adversarial_gradient(model, patched, backdoor.adversarial_class) for model in models]
            objective = matching.objective(models, wanted, labels)

        def before_step(step: int, poisons: Tensor) -> None:
            if step == 0:
                match_gradients_of(first, 0)
            elif retrain is not None and step % self.retrain_every == 0:
                moved = quantise(poisons - images, images, self.brewing.epsilon).cpu()
                now = PoisonedSet("SleeperAgent", train.ids[bases], moved, backdoor, self.brewing.epsilon)
                trained = step // self.retrain_every
                match_gradients_of(as_list(retrain(now.apply(train), trained)), trained)

        def current(poisons: Tensor, stream: torch.Generator) -> Tensor:
            assert objective is not None
            return objective(poisons, stream)

        with evaluation_mode(*first):
            brewed = brew(current, images, self.brewing, seed=seed, progress=progress, before_step=before_step)
        return poisoned_set(self, train, bases, brewed, aim=backdoor, epsilon=self.brewing.epsilon, seed=seed)
