"""Adversarial examples by projected gradient ascent on the loss, without a random start (Madry et al. 2018).

The paper is https://arxiv.org/abs/1706.06083. The model is used as it is in evaluation: its parameters, running
statistics and mode are the same afterwards. Inputs live in the space where the budget is measured, so images are in [0,
1] and normalisation belongs into the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.modes import constant_parameters, evaluation_mode
from holdfast.primitives.projections import norms_of, project_to_ball

#: In which norm a perturbation is small.
Norm = Literal["inf", "2"]

#: Outputs (n, classes) and labels (n,) to the loss of each example (n,).
ExampleLoss = Callable[[Tensor, Tensor], Tensor]

_BLOCK = 512


@dataclass(frozen=True)
class Pgd:
    """An attack with a budget.

    Attributes:
        epsilon: the budget, the largest norm of a perturbation. 0 leaves inputs as they are, to the bit.
        steps: how many.
        step_size: of each; 2.5 budgets over all steps by default, which reaches the border of the ball and can still
            move along it.
        norm: of the ball, and of the step: its sign (`inf`), or the normalised gradient (`2`).
        bounds: smallest and largest value of an input; None where inputs are no images.
    """

    epsilon: float = 8 / 255
    steps: int = 10
    step_size: float | None = None
    norm: Norm = "inf"
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ConfigError(f"the budget epsilon is {self.epsilon}; give 0 or more")
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}; give at least 1")
        if self.step_size is not None and not self.step_size > 0:
            raise ConfigError(f"step_size is {self.step_size}; give a positive number")

    def within(self, epsilon: float) -> Pgd:
        """The same attack with another budget; a step size that was given shrinks with it."""
        step = self.step_size
        if step is not None and self.epsilon:
            step *= epsilon / self.epsilon
        return replace(self, epsilon=epsilon, step_size=step or None)

    def __call__(self, model: nn.Module, inputs: Tensor, labels: Tensor, loss: ExampleLoss | None = None) -> Tensor:
        """Examples near `inputs` at which the model's loss for the true labels is large.

        Args:
            model: any module, outputs of shape (n, classes).
            inputs: shape (n, ...), floating point.
            labels: shape (n,).
            loss: of each example; cross-entropy by default.

        Returns:
            Shape and dtype of `inputs`, without a gradient.

        Raises:
            ConfigError: if inputs are outside the bounds.
            FloatingPointError: if a gradient is no number.
        """
        if self.epsilon == 0:
            return inputs.detach().clone()
        if self.bounds is not None and len(inputs):
            low, high = inputs.min(), inputs.max()
            if low < self.bounds[0] or high > self.bounds[1]:
                raise ConfigError(
                    f"inputs go from {low:g} to {high:g}, outside the bounds {self.bounds}; put normalisation into the "
                    "model, or lift the bounds where inputs aren't pixels"
                )
        losses = loss or _cross_entropy
        with evaluation_mode(model), constant_parameters(model):
            blocks = zip(torch.split(inputs.detach(), _BLOCK), torch.split(labels, _BLOCK), strict=True)
            moved = [self._attack(model, start, target, losses) for start, target in blocks]
        return torch.cat(moved) if moved else inputs.detach().clone()

    def _attack(self, model: nn.Module, start: Tensor, labels: Tensor, losses: ExampleLoss) -> Tensor:
        at = start
        for _ in range(self.steps):
            at = at.detach().requires_grad_()
            with torch.enable_grad():
                # Of the sum: each example gets its own gradient, whatever the size of its block.
                (gradient,) = torch.autograd.grad(losses(model(at), labels).sum(), at)
            if not gradient.isfinite().all():
                raise FloatingPointError("the gradient of the loss with respect to the inputs is not finite")
            at = self._project(at.detach() + self._step(gradient), start)
        return at

    def _step(self, gradient: Tensor) -> Tensor:
        size = 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size
        if self.norm == "inf":
            return size * gradient.sign()
        norms = norms_of(gradient)
        return torch.where(norms > 0, size * gradient / norms.clamp(min=torch.finfo(norms.dtype).tiny), 0)

    def _project(self, at: Tensor, start: Tensor) -> Tensor:
        if self.norm == "inf":
            at = torch.minimum(torch.maximum(at, start - self.epsilon), start + self.epsilon)
        else:
            at = project_to_ball(at, self.epsilon, start)
        return at if self.bounds is None else at.clamp(*self.bounds)


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")
