"""Copies of a user's module: the user's own is never run, moved or changed."""

from __future__ import annotations

import copy

import torch
from torch import nn

from holdfast.errors import ConfigError


def copy_of(model: nn.Module) -> nn.Module:
    """A copy, or a sentence that says why there can be none."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError(
            f"the model {type(model).__name__} is compiled by TorchScript, which keeps its weights to itself; give the "
            "Python module that it was made of"
        )
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"the model {type(model).__name__} can't be copied ({error}); a client needs a copy of its own"
        ) from error


def moved_to(model: nn.Module, device: str | torch.device) -> nn.Module:
    """The model on a device, with weights that were tied still tied: on some devices torch makes new ones of them."""
    places = [(owner._parameters, name) for owner in model.modules() for name in owner._parameters]
    before = [own[name] for own, name in places]
    try:
        model.to(device)
    except (RuntimeError, AssertionError, ImportError) as error:  # no such device, or a build of torch without it
        reason = str(error).splitlines()[0]
        raise ConfigError(f"the device {device!r} can't be used here ({reason}); use another") from error
    after: dict[int, nn.Parameter | None] = {}
    for (own, name), was in zip(places, before, strict=True):
        own[name] = after.setdefault(id(was), own[name])
    return model
