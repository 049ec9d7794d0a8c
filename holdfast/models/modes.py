"""Models for a while in another mode: evaluation instead of training, or with parameters that are constants.

`nn.Module.train` sets one mode for a whole tree of modules, and users freeze parts of it: batch norm in evaluation mode
inside a model that trains, say. So every module's own mode is remembered, and comes back after an error too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; every submodule gets its own mode back, whatever it is set to meanwhile."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def constant_parameters(model: nn.Module) -> Iterator[None]:
    """No gradient reaches the parameters inside the block: for gradients with respect to inputs alone."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_()
