"""Batch norm for coresets: a mini-batch that stands for a larger one is to be normalised by that one's statistics.

A coreset is deliberately unlike the data: rare examples are in it once and common ones are in it once with a large
weight. Plain batch norm takes the mean and variance of such a mini-batch as they are; with the weights of the coreset
they are near those of the subset it stands for. The other way out is to go by running statistics once they have
settled, and to leave them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.data.examples import Examples
from holdfast.models.compiled import uncompiled
from holdfast.training.clock import Clock
from holdfast.training.objective import CrossEntropy, Forward, NewOptimizer, Objective


@contextmanager
def weighted_batch_norm(model: nn.Module, weights: Tensor) -> Iterator[None]:
    """Inside the block, batch norm in training mode goes by weighted means and variances.

    Args:
        model: the model.
        weights: of the examples of the mini-batch, shape (b,), positive.
    """
    # `_BatchNorm` is private to torch, and the only class that all of its batch norms have in common.
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]

    def bound(norm: _BatchNorm) -> None:
        def forward(inputs: Tensor) -> Tensor:
            return _normalised(norm, inputs, weights)

        # On the instance, where it hides the method of the class: hooks still run, other layers are not concerned, and
        # deleting it brings the method back.
        norm.forward = forward  # type: ignore[assignment,method-assign]

    for norm in norms:
        bound(norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


@contextmanager
def frozen_batch_norm(model: nn.Module) -> Iterator[None]:
    """Inside the block, batch norm goes by its running statistics and doesn't change them.

    Args:
        model: the model.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def _normalised(norm: _BatchNorm, inputs: Tensor, weights: Tensor) -> Tensor:
    """As `torch.nn.BatchNorm2d`, running statistics included, with weights in the sums over the batch."""
    others = [dim for dim in range(inputs.ndim) if dim != 1]
    shape = [1, -1] + [1] * (inputs.ndim - 2)
    places = inputs.numel() // (inputs.shape[0] * inputs.shape[1])
    share = (weights / (weights.sum() * places)).view(-1, *[1] * (inputs.ndim - 1))
    mean = (share * inputs).sum(others)
    variance = (share * (inputs - mean.view(shape)).square()).sum(others)
    # As torch does it: the biased variance normalises, the unbiased one is remembered.
    if norm.track_running_stats and norm.running_mean is not None and norm.running_var is not None:
        count = inputs.numel() / inputs.shape[1]
        with torch.no_grad():
            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked += 1
            rate = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.lerp_(mean, rate)
            norm.running_var.lerp_(variance * count / max(count - 1, 1), rate)
    normalised = (inputs - mean.view(shape)) * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        normalised = normalised * norm.weight.view(shape) + norm.bias.view(shape)
    return normalised


class WeightedStatistics(Objective):
    """The weighted cross-entropy, with batch statistics that are weighted alike."""

    is_mean: ClassVar[bool] = True

    def __call__(self, forward: Forward) -> Tensor:
        """mean(weight x loss) over the batch."""
        forward.model = uncompiled(forward.model)  # a compiled one would go by the statistics it was compiled with
        with weighted_batch_norm(forward.model, forward.local.weights):
            return CrossEntropy()(forward)


class FrozenStatistics(Objective):
    """The weighted cross-entropy, with batch statistics that stay as they are after a warm-up.

    Args:
        warmup: for how long they are learned, in tenths of the training set.
    """

    is_mean: ClassVar[bool] = True

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._n = 0

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Learn how large the training set is."""
        self._n = len(examples)

    def __call__(self, forward: Forward) -> Tensor:
        """mean(weight x loss) over the batch."""
        if not statistics_are_warm(forward.clock, forward.step_size, self._n, self._warmup):
            return CrossEntropy()(forward)
        forward.ranks.share_buffers(forward.model)  # each process's statistics were its own until now
        with frozen_batch_norm(forward.model):
            return CrossEntropy()(forward)


def statistics_are_warm(clock: Clock, batch_size: int, n: int, warmup: int) -> bool:
    """Whether training has gone through `warmup` tenths of the `n` examples, in mini-batches of `batch_size`."""
    return 10 * clock.stage_step * batch_size >= warmup * n
