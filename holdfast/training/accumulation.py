"""A step on more examples than the memory holds: the mini-batch in parts, with the gradient of the whole.

Losses that are means over examples need nothing but the right weights: gradients of the parts add up. Losses that look
at a mini-batch as a whole (the groups of GroupDRO, the pairs of CnC) get all of its outputs, computed part by part
without activations, and each part is run once more when its gradient is needed (Gao et al. 2021,
https://arxiv.org/abs/2101.06983, by torch's activation checkpointing, which replays dropout).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from holdfast.data.inputs import InputBatch


def part_sizes(count: int, size: int) -> list[int]:
    """How many of `count` examples are in each part of `size`; a lone last one joins those before it.

    Batch norm can't train on a single example.

    Example:
        >>> part_sizes(9, 4), part_sizes(10, 4), part_sizes(1, 4)
        ([4, 5], [4, 4, 2], [1])
    """
    whole, rest = divmod(count, size)
    if rest == 1 and whole > 0 and size > 1:
        return [size] * (whole - 1) + [size + 1]
    return [size] * whole + ([rest] if rest else [])


def split_inputs(inputs: InputBatch, sizes: Sequence[int]) -> list[InputBatch]:
    """The inputs of each part, without copying them."""
    if isinstance(inputs, dict):
        parts = {name: torch.split(part, list(sizes)) for name, part in inputs.items()}
        return [{name: split[number] for name, split in parts.items()} for number in range(len(sizes))]
    return list(torch.split(inputs, list(sizes)))


def recomputed(
    model: nn.Module, outputs: Callable[[InputBatch], tuple[Tensor, ...]], parts: Sequence[InputBatch]
) -> tuple[Tensor, ...]:
    """Outputs of all parts, joined; what is between input and output is computed anew for each part's gradient."""

    def modes() -> tuple[Any, Any]:
        return nullcontext(), _kept_statistics(model)

    done = [checkpoint(outputs, part, use_reentrant=False, context_fn=modes) for part in parts]
    return tuple(torch.cat(kind) for kind in zip(*done, strict=True))


@contextmanager
def _kept_statistics(model: nn.Module) -> Iterator[None]:
    """Running statistics have seen the part already: the second time, copies of them are updated and thrown away."""
    # Other tensors stand in for the buffers: a tape that leads through the originals must find them untouched.
    buffers = [
        (module, name, buffer) for module in model.modules() for name, buffer in module.named_buffers(recurse=False)
    ]
    for module, name, buffer in buffers:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in buffers:
            setattr(module, name, buffer)
