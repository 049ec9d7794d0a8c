"""Adversarial Poisoning (Geiping et al. 2021): poison every mini-batch on the fly, so that training learns to resist.

The paper is https://arxiv.org/abs/2102.13624. Part of a mini-batch is perturbed by gradient matching against the
network as it is now; the other part plays the targets, under the most frequent label of the first. The network then
trains on both with their own labels. It costs a double backward pass for every step of the inner attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.models.modes import evaluation_mode
from holdfast.poisoning.attacks.crafting.brewing import Brewing, brew
from holdfast.poisoning.attacks.crafting.objectives import misalignment, parameter_gradient
from holdfast.training.model_outputs import call
from holdfast.training.objective import Forward, Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy


class PoisonedCrossEntropy(Objective):
    """Cross-entropy of a mini-batch of which part has just been poisoned.

    Args:
        share: of the mini-batch to poison.
        brewing: how.
    """

    def __init__(self, share: float, brewing: Brewing) -> None:
        self.share, self.brewing = share, brewing

    def __call__(self, forward: Forward) -> Tensor:
        """The mean loss under the labels that examples have; of several processes, each poisons part of its share."""
        batch = forward.local
        assert isinstance(batch.inputs, Tensor)
        count = int(self.share * len(batch.labels))
        inputs = batch.inputs
        if inputs.dim() != 4:
            raise DataError(
                f"adversarial-poisoning changes images, and inputs have the shape {tuple(inputs.shape[1:])};"
                " train on images, with on_images=True where a victim's features would be computed once"
            )
        if 0 < count < len(inputs):
            inputs = inputs.clone()
            inputs[:count] += self.perturbations(forward, count)
        losses = F.cross_entropy(call(forward.model, inputs), batch.labels, reduction="none")
        return (forward.batch.weights * forward.gather(losses)).mean()

    def perturbations(self, forward: Forward, count: int) -> Tensor:
        """What is added to the first `count` examples."""
        model, inputs, labels = forward.model, forward.local.inputs, forward.local.labels
        assert isinstance(inputs, Tensor)
        own, pretended = labels[:count], labels[:count].mode().values

        def objective(poisons: Tensor, _: torch.Generator) -> Tensor:
            return misalignment(parameter_gradient(model, poisons, own, create_graph=True)[0], wanted)

        with evaluation_mode(model):
            targets = inputs[count:]
            wanted = parameter_gradient(model, targets, pretended.expand(len(targets)))[0].detach()
            return brew(objective, inputs[:count], self.brewing, seed=forward.clock.step).perturbations


@dataclass(kw_only=True)
class AdversarialPoisoning(Policy):
    """Poisons part of every mini-batch and trains on it with the right labels.

    Attributes:
        share: of a mini-batch that is poisoned; published are 0.25, 0.5 and 0.75.
        epsilon: largest change of a pixel.
        steps: of the inner attack.
        step_size: of its signed Adam, in pixels from 0 to 1.
    """

    name: ClassVar[str] = "adversarial-poisoning"

    share: float = 0.5
    epsilon: float = 16 / 255
    steps: int = 5
    step_size: float = 0.025

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"the share of adversarial-poisoning is {self.share}; give a number between 0 and 1")

    def objective(self) -> Objective:
        """The cross-entropy of poisoned mini-batches."""
        brewing = Brewing(epsilon=self.epsilon, steps=self.steps, step_size=self.step_size, decay=False)
        return PoisonedCrossEntropy(self.share, brewing)

    def update(self, context: Context) -> Plan:
        """No opinion on examples."""
        return Plan()
