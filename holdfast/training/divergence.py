"""Training that left the numbers: found soon, and said with what usually helps."""

from __future__ import annotations

import math

from torch import nn

from holdfast.errors import HoldfastError
from holdfast.training.clock import Clock
from holdfast.training.settings import Training


def check_loss(loss: float, clock: Clock, settings: Training, learning_rate: float) -> None:
    """Refuse a mean loss that isn't a finite number.

    Args:
        loss: of the epoch so far.
        clock: where training stands.
        settings: of the training, for what could be changed.
        learning_rate: in force now.

    Raises:
        HoldfastError: if it is not finite.
    """
    if not math.isfinite(loss):
        raise _diverged(f"the training loss became {loss}", clock, settings, learning_rate)


def check_weights(model: nn.Module, clock: Clock, settings: Training, learning_rate: float) -> None:
    """Before the state is saved: the loss of the last step is that of the weights before it.

    Raises:
        HoldfastError: if a weight is not finite.
    """
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise _diverged("weights became infinite or NaN", clock, settings, learning_rate)


def _diverged(what: str, clock: Clock, settings: Training, learning_rate: float) -> HoldfastError:
    narrow = ", or give --precision bf16, whose range is that of fp32" if settings.precision == "fp16" else ""
    clipped = "" if settings.clip_norm is not None else ", or cut gradients by --clip-norm 1"
    return HoldfastError(
        f"{what} in epoch {clock.epoch} before step {clock.step}; lower the learning rate (it is "
        f"{learning_rate:g}){clipped}{narrow}, or look for inputs that are not finite"
    )
