"""Models behind `torch.compile`: what looks inside a model needs it as it was written.

A compiled model runs fixed graphs: hooks added later are not seen, and neither second derivatives nor gradients of
single examples go through them. Outputs and gradients of a loss are the same either way, so training runs compiled, and
what needs more runs the same parameters uncompiled.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def uncompiled(model: nn.Module) -> nn.Module:
    """The model itself, where `model` is what `torch.compile` made of it; the parameters are the same."""
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        model = inner
    return model


def running_uncompiled() -> AbstractContextManager[object]:
    """Inside the block everything runs as written, whatever part of a model was compiled."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and importing it takes seconds
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
