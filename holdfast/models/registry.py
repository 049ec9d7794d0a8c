"""The networks by name, with the same start for the same seed, or from weights on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.models.spec import ModelSpec


def build(
    name: str,
    input_shape: tuple[int, ...],
    n_classes: int,
    *,
    args: Mapping[str, Any] | None = None,
    seed: int = 0,
    weights: Path | str | None = None,
    root: Path | str | None = None,
) -> nn.Module:
    """Make the network called `name`: `ModelSpec.build` without a `ModelSpec` to keep.

    Args:
        name: a key of `MODELS`, or another name that `ModelSpec` knows.
        input_shape: shape of one input, without the batch dimension.
        n_classes: how many logits.
        args: arguments of the network's own.
        seed: decides the random start; the caller's global generator is left as it was.
        weights: what to start from, see `ModelSpec`.
        root: the data root, whose ``weights/`` holds public weights, see `holdfast.data.catalog.data_root`.

    Returns:
        The model, on the CPU, in training mode.

    Raises:
        ConfigError: if the name is unknown, the shape doesn't suit, or the file of weights isn't there.
        CheckpointError: if the weights can't be read, belong to another network, or aren't the public ones they are
            named like.

    Example:
        >>> model = build("mlp", (3, 10, 10), 2, seed=1)
        >>> sum(parameter.numel() for parameter in model.parameters())
        55298
    """
    start = None if weights is None else str(weights)
    return ModelSpec(name, tuple(input_shape), n_classes, dict(args or {}), seed, start).build(root)
