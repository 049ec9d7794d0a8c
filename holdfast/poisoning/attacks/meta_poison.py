"""MetaPoison: poisons chosen by looking a few training steps ahead.

Huang et al., "MetaPoison: Practical General-purpose Clean-label Data Poisoning" (NeurIPS 2020,
https://arxiv.org/abs/2004.00225). A surrogate takes a few SGD steps on the poisons among clean examples; the target's
loss under the adversarial label after these steps is differentiated through them. Surrogates stand at different stages
of training, see `staggered_surrogates`. Weaker than Gradient Matching, and here as a second attack on training from
scratch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.errors import ConfigError
from holdfast.models.heads import logits_of
from holdfast.poisoning.attacks.crafting.brewing import Brewed, Brewing, brew
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.targeted import Crafting, TargetedAttack


@dataclass(frozen=True)
class MetaPoison(TargetedAttack):
    """The attack.

    Attributes:
        brewing: how perturbations are searched.
        look_ahead: SGD steps that are unrolled.
        learning_rate: of these steps.
        clean: examples of the clean training set in each of their batches, besides all poisons.
    """

    brewing: Brewing = field(default_factory=lambda: Brewing(steps=60, step_size=0.01, signed=False, decay=False))
    look_ahead: int = 2
    learning_rate: float = 0.1
    clean: int = 125

    def __post_init__(self) -> None:
        if self.look_ahead < 1:
            raise ConfigError(f"look_ahead is {self.look_ahead}; unroll at least 1 step")
        if not self.learning_rate > 0 or self.clean < 0:
            raise ConfigError("give a positive learning_rate, and 0 or more clean examples")

    def search(self, work: Crafting) -> Brewed:
        """Lower the targets' adversarial loss after the steps that are unrolled, averaged over the surrogates."""
        train, device, targets = work.train, work.device, work.targets
        labels = train.labels[work.bases]
        question = targets.images.to(device), torch.full_like(targets.labels, targets.adversarial_class).to(device)
        others = torch.ones(len(train), dtype=torch.bool).index_fill(0, work.bases, False).nonzero().flatten()

        def objective(poisons: Tensor, stream: torch.Generator) -> Tensor:
            batches = list[tuple[Tensor, Tensor]]()
            for _ in range(self.look_ahead):
                drawn = others[torch.randperm(len(others), generator=stream)[: self.clean]]
                inputs = torch.cat([poisons, pixels_at(train, drawn).to(device)])
                batches.append((inputs, torch.cat([labels, train.labels[drawn]]).to(device)))
            terms = [unrolled_loss(model, batches, question, self.learning_rate) for model in work.models]
            return torch.stack(terms).mean()

        return brew(objective, work.images, self.brewing, seed=work.seed, progress=work.progress)


def unrolled_loss(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], question: tuple[Tensor, Tensor], learning_rate: float
) -> Tensor:
    """The loss on a question after an SGD step on each batch, with the tape through all steps.

    Args:
        model: where training stands; it is left there. Its mode is that of all passes.
        batches: inputs and labels of each step.
        question: inputs and labels that are asked afterwards.
        learning_rate: of the steps.

    Returns:
        The mean cross-entropy, a scalar.
    """
    trained = {name: p.detach().requires_grad_() for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ConfigError("no parameter of the surrogate trains, so looking ahead shows nothing; unfreeze the head")
    with torch.enable_grad():
        for inputs, labels in batches:
            loss = F.cross_entropy(logits_of(functional_call(model, trained, (inputs,))), labels)
            gradients = torch.autograd.grad(loss, list(trained.values()), create_graph=True)
            trained = {
                name: value - learning_rate * gradient
                for (name, value), gradient in zip(trained.items(), gradients, strict=True)
            }
        return F.cross_entropy(logits_of(functional_call(model, trained, (question[0],))), question[1])
