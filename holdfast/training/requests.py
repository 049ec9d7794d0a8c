"""What policies ask for besides a plan (`holdfast.training.policy.Request`), done to model, optimizer and scheduler."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.training.policy import ResetOptimizer, ScaleLearningRate, SetOptimizer
from holdfast.training.schedulers import options_of, restore_options, scale_rates


def starting_point(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any) -> dict[str, Any]:
    """The way back for a policy that starts training again: weights and options as they are before the first step."""
    return {
        "model": {name: tensor.detach().clone() for name, tensor in model.state_dict().items()},
        "options": options_of(optimizer),
        "scheduler": None if scheduler is None else copy.deepcopy(scheduler.state_dict()),
    }


def go_back(
    start: dict[str, Any] | None,
    model: nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    scheduler: Any,
    policies: str,
) -> None:
    """Give everything back what `starting_point` kept of it.

    Raises:
        ConfigError: if there is nothing to give it to; it names the `policies`.
    """
    if model is None or optimizer is None or start is None:
        raise ConfigError(
            f"{policies} trains again from the start; give it the model and the optimizer: "
            "curator.epochs(n, model, optimizer)"
        )
    model.load_state_dict(start["model"])
    restore_options(optimizer, start["options"])
    if scheduler is not None and start.get("scheduler") is not None:
        scheduler.load_state_dict(copy.deepcopy(start["scheduler"]))
    optimizer.state.clear()


def change_optimizer(
    request: ScaleLearningRate | ResetOptimizer | SetOptimizer, optimizer: torch.optim.Optimizer, scheduler: Any
) -> None:
    """Do to an optimizer what was asked; an option that it has no notion of (Adam's momentum) is left out."""
    if isinstance(request, ScaleLearningRate):
        scale_rates(optimizer, request.factor, scheduler)
    elif isinstance(request, ResetOptimizer):
        optimizer.state.clear()
    else:
        options = {"weight_decay": request.weight_decay, "momentum": request.momentum}
        for group in optimizer.param_groups:
            group.update({name: value for name, value in options.items() if value is not None and name in group})
