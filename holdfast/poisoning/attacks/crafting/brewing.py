"""Brewing: perturbations of base images that make an objective small, inside the budget and the pixel range.

All attacks that search by gradients share this loop: Adam on the perturbations, with the sign of the gradient in
its place where the attack is Witches' Brew (Geiping et al. 2021), projected after each step. Several restarts are
judged under the same random draws, and the best is kept. At the end perturbations are rounded to 8-bit levels without
leaving the budget, and the objective is that of what is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.streams import torch_stream

#: Poisons (p, channels, height, width) and the random stream of the step, to a scalar that is to become small.
Objective = Callable[[Tensor, torch.Generator], Tensor]

#: Called with restart, step and the objective before the step.
Progress = Callable[[int, int, float], None]

#: Called with the step and the current poisons before each step: where an attack changes its objective on the way.
BeforeStep = Callable[[int, Tensor], None]

_LEVELS = 255


@dataclass(frozen=True)
class Brewing:
    """How perturbations are searched.

    Attributes:
        epsilon: the budget, largest absolute change of a pixel.
        steps: of Adam.
        step_size: in pixels from 0 to 1. Published step sizes are for normalised inputs, about four times as large.
        restarts: how many starts; the one with the smallest objective is kept.
        signed: take the sign of the gradient.
        decay: divide the step size by 10 after 3/8, 5/8 and 7/8 of the steps.
        start: noise as large as the budget, or the bases themselves.
    """

    epsilon: float = 8 / 255
    steps: int = 250
    step_size: float = 0.025
    restarts: int = 1
    signed: bool = True
    decay: bool = True
    start: Literal["noise", "bases"] = "noise"

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise ConfigError(f"the budget epsilon is {self.epsilon}; give a positive number, such as 8/255")
        if not self.step_size > 0:
            raise ConfigError(f"step_size is {self.step_size}; give a positive number")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")

    def rate(self, step: int) -> float:
        """The step size at a step, from 0."""
        passed = sum(step >= self.steps * eighths // 8 for eighths in (3, 5, 7)) if self.decay else 0
        return self.step_size * 0.1**passed


@dataclass(frozen=True, eq=False)
class Brewed:
    """The result of a search.

    Attributes:
        perturbations: whole 8-bit levels, float32 in the shape of the bases.
        objective: of the poisons, under draws that all restarts share.
        trace: the objective before each step of the restart that was kept, float32 of shape (steps,).
    """

    perturbations: Tensor
    objective: float
    trace: Tensor


def brew(
    objective: Objective,
    bases: Tensor,
    brewing: Brewing,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    before_step: BeforeStep | None = None,
) -> Brewed:
    """Search perturbations that make the objective small.

    Args:
        objective: what to minimise.
        bases: pixels from 0 to 1, shape (p, channels, height, width).
        brewing: how.
        seed: names the random streams.
        progress: told of every step.
        before_step: asked before every step; a restart begins with step 0.

    Returns:
        The best restart.

    Raises:
        FloatingPointError: if the objective or its gradient is no number.
    """

    def search(restart: int) -> Brewed:
        delta = torch.zeros_like(bases)
        if brewing.start == "noise":
            noise = torch.randn(bases.shape, generator=torch_stream(seed, "start", restart))
            delta = project(brewing.epsilon * noise.to(bases), bases, brewing.epsilon)
        delta.requires_grad_()
        optimizer = torch.optim.Adam([delta])
        trace = list[float]()
        for step in range(brewing.steps):
            if before_step is not None:
                before_step(step, (bases + delta).detach())
            with torch.enable_grad():
                value = objective(bases + delta, torch_stream(seed, "step", restart, step))
                (gradient,) = torch.autograd.grad(value, delta)
            trace.append(float(value.detach()))
            if not (math.isfinite(trace[-1]) and bool(gradient.isfinite().all())):
                raise FloatingPointError(f"the objective is {trace[-1]} at step {step}, or its gradient not finite")
            if progress is not None:
                progress(restart, step, trace[-1])
            delta.grad = gradient.sign() if brewing.signed else gradient
            optimizer.param_groups[0]["lr"] = brewing.rate(step)
            optimizer.step()
            with torch.no_grad():
                delta.copy_(project(delta, bases, brewing.epsilon))
        perturbations = quantise(delta.detach(), bases, brewing.epsilon)
        judged = float(objective(bases + perturbations, torch_stream(seed, "judge")).detach())
        return Brewed(perturbations, judged, torch.tensor(trace))

    return min((search(restart) for restart in range(brewing.restarts)), key=lambda brewed: brewed.objective)


def project(perturbations: Tensor, bases: Tensor, epsilon: float) -> Tensor:
    """The nearest perturbations within the budget that keep every pixel between 0 and 1."""
    return torch.minimum(
        torch.maximum(perturbations, (-bases).clamp(min=-epsilon)), (1 - bases).clamp(min=0, max=epsilon)
    )


def quantise(perturbations: Tensor, bases: Tensor, epsilon: float | None) -> Tensor:
    """Perturbations as whole levels of 8-bit images, within the budget and the pixel range.

    Rounding whole images instead, as image files do, can leave the budget by a level when bases are no 8-bit images.

    Args:
        perturbations: in the shape of the bases.
        bases: pixels from 0 to 1.
        epsilon: the budget; None for none.

    Returns:
        Multiples of 1/255, float32.
    """
    levels = (perturbations.double() * _LEVELS).round()
    if epsilon is not None:
        most = math.floor(epsilon * _LEVELS + 1e-6)
        levels = levels.clamp(-most, most)
    room = 1e-6
    at = bases.double() * _LEVELS
    levels = torch.minimum(levels, (_LEVELS - at + room).floor())
    levels = torch.maximum(levels, (-at - room).ceil())
    return (levels / _LEVELS).to(torch.float32)
