"""Learning-rate schedulers that follow what policies ask for.

The curator changes the optimizer, but a scheduler computes the next rate from what it remembers: it would undo PDE's
`ScaleLearningRate` at its next step, and would not begin anew at SPARE's and JTT's `Restart`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch.optim import lr_scheduler

from holdfast.errors import ConfigError
from holdfast.training.policy import Request, Restart, ScaleLearningRate

#: Schedulers whose next rate is proportional to the last one or to `base_lrs`.
_SCALABLE = (
    lr_scheduler.LambdaLR,
    lr_scheduler.MultiplicativeLR,
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.LinearLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.CosineAnnealingLR,
    lr_scheduler.CosineAnnealingWarmRestarts,
    lr_scheduler.ReduceLROnPlateau,
)


def snapshot(schedulers: Sequence[Any]) -> list[dict[str, Any]]:
    """The schedulers' states before training, for `follow`."""
    return [copy.deepcopy(scheduler.state_dict()) for scheduler in schedulers]


def follow(requests: Sequence[Request], schedulers: Sequence[Any], initial: Sequence[dict[str, Any]]) -> None:
    """Do to the schedulers what the curator has just done to the optimizer.

    Args:
        requests: what `Curator.end_epoch` returned.
        schedulers: torch's, of the curator's optimizer.
        initial: their `snapshot` from before training.

    Raises:
        ConfigError: if a rate is to be scaled whose scheduler keeps absolute rates.
    """
    for request in requests:
        if isinstance(request, Restart):
            for scheduler, state in zip(schedulers, initial, strict=True):
                scheduler.load_state_dict(copy.deepcopy(state))
        elif isinstance(request, ScaleLearningRate):
            for scheduler in schedulers:
                _scale(scheduler, request.factor)


def _scale(scheduler: Any, factor: float) -> None:
    if not isinstance(scheduler, _SCALABLE):
        raise ConfigError(
            f"a policy multiplies the learning rate by {factor:g} from here on and {type(scheduler).__name__} would "
            "undo it, because it keeps absolute rates; use a LambdaLR, StepLR, MultiStepLR or CosineAnnealingLR"
        )
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
