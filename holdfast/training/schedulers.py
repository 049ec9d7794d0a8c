"""Learning-rate schedulers of torch that follow what policies ask for: training again, or another learning rate.

A scheduler counts steps and remembers the learning rates it began with. Where a policy starts training again it must
begin again too, else it has run to 0 before the second stage is over; where a policy scales the learning rate, what the
scheduler remembers is scaled alike, since many compute each rate anew from it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

#: Options of a parameter group that are learning rates, of cyclic schedulers too.
_RATES = ("lr", "initial_lr", "max_lr", "min_lr")


def options_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The options of every parameter group, as they are now."""
    return [
        {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]


def restore_options(optimizer: torch.optim.Optimizer, options: list[dict[str, Any]]) -> None:
    """Give every parameter group its options back."""
    for group, remembered in zip(optimizer.param_groups, options, strict=True):
        group.update(copy.deepcopy(remembered))


def scale_rates(optimizer: torch.optim.Optimizer, factor: float, scheduler: Any = None) -> None:
    """Multiply the learning rates, and those that the scheduler computes later ones from."""
    kept = _RATES if scheduler is not None else ("lr",)
    for group in optimizer.param_groups:
        for name in kept:
            if name in group:
                group[name] *= factor
    for one in _members(scheduler):
        for name in ("base_lrs", "_last_lr"):
            if hasattr(one, name):
                setattr(one, name, [rate * factor for rate in getattr(one, name)])


def _members(scheduler: Any) -> list[Any]:
    """The scheduler and those it is made of."""
    if scheduler is None:
        return []
    return [scheduler, *(part for member in getattr(scheduler, "_schedulers", ()) for part in _members(member))]
