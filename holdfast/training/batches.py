"""What a training loop is handed: mini-batches, before and after their inputs are read, whole and as shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.data.inputs import InputBatch
from holdfast.training.accumulation import part_sizes, split_inputs
from holdfast.training.shares import Share


class Batch(NamedTuple):
    """A mini-batch.

    Attributes:
        inputs: what the model takes.
        labels: int64 of shape (b,).
        positions: of the examples in the training set, int64 of shape (b,), on the CPU.
        weights: weight of each example in the loss, float32 of shape (b,); ones where no policy weighs.
    """

    inputs: InputBatch
    labels: Tensor
    positions: Tensor
    weights: Tensor


class Drawn(NamedTuple):
    """A mini-batch before its inputs are read.

    Attributes:
        step: the optimizer step it is for.
        positions: of its examples in the training set, int64 of shape (b,).
        weights: in the loss, float32 of shape (b,).
        inputs: of a plan that keeps the inputs itself.
    """

    step: int
    positions: Tensor
    weights: Tensor
    inputs: Tensor | None


class SharedBatch(Batch):
    """A process's share of a mini-batch: a `Batch` with weights scaled for the mean over processes.

    Attributes:
        whole: the mini-batch of all processes, with its labels, positions and weights; its inputs are the share's.
        share: which of its places these are.
    """

    whole: Batch
    share: Share

    @classmethod
    def of(cls, local: Batch, whole: Batch, share: Share) -> SharedBatch:
        """What this process runs the model on, with the mini-batch that it is a part of."""
        batch = cls(*local)
        batch.whole, batch.share = whole, share
        return batch


def split_batch(batch: Batch, sizes: list[int]) -> list[Batch]:
    """The mini-batch in parts of these sizes, without copying it."""
    inputs = split_inputs(batch.inputs, sizes)
    others = [torch.split(values, sizes) for values in (batch.labels, batch.positions, batch.weights)]
    return [Batch(*part) for part in zip(inputs, *others, strict=True)]


def parts_to_accumulate(batch: Batch, accumulate: int, step_size: int) -> Iterator[tuple[Batch, bool]]:
    """A step's mini-batch in parts, and which is the last.

    Weights are such that the parts' means of weight x loss, each divided by `accumulate`, add up to the mean of the
    whole, however uneven the parts are.

    Args:
        batch: of the step, or this process's share of it.
        accumulate: in how many parts a full step is handed out.
        step_size: examples of a full step, over all processes.
    """
    count = len(batch.labels)
    if isinstance(batch, SharedBatch):
        sizes = batch.share.part_sizes(accumulate, -(-step_size // (accumulate * batch.share.ranks.count)))
    else:
        sizes = part_sizes(count, -(-step_size // accumulate))
    for number, part in enumerate(split_batch(batch, sizes), start=1):
        factor = accumulate * len(part.labels) / count
        yield part._replace(weights=part.weights * factor), number == len(sizes)
