"""In which numbers a model computes: float32, or bfloat16 and float16 where they do by torch's autocast.

Weights, their updates, losses and everything a policy decides stay in float32; what is cast are the products inside the
forward pass. float16 has a narrow range, so its gradients are scaled up before they are computed and down before they
are used (Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740); the scale is state and belongs in a checkpoint.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch

from holdfast.errors import ConfigError, nearest

Precision = Literal["fp32", "bf16", "fp16"]

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(precision: str, device: torch.device | None = None) -> None:
    """Refuse a word that is no precision, and one that the device has no autocast for.

    Raises:
        ConfigError: it names what would be understood.
    """
    if precision not in get_args(Precision):
        raise ConfigError(f"precision is {precision!r}{nearest(precision, get_args(Precision))}")
    if device is None or precision == "fp32":
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of a type that the device lacks, and goes on in float32
            torch.autocast(device.type, dtype=_TYPES[precision])
    except (RuntimeError, ValueError, AssertionError, UserWarning) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{device} has no autocast to {precision} ({reason}); give fp32, or another device"
        ) from error


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Inside the block products are computed in `precision`."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=_TYPES[precision])


def new_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """What scales gradients, where the precision needs it."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None
