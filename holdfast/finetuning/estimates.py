"""What training and recording a proxy will cost, measured on one small mini-batch before anything is begun.

Time per token is that of a forward and a backward pass, and of a forward pass alone. Memory is counted: weights,
gradients and AdamW's two moments of what is trained, and what autograd keeps of the mini-batch for its backward pass,
by the tensors it saves. So the largest mini-batch that fits is known without running out of memory once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.finetuning.language_models.fine_tuning import FineTuningSettings, compute_gradients, recomputing
from holdfast.finetuning.language_models.losses import example_losses, usual_precision
from holdfast.finetuning.language_models.tokens import Ints, TokenPairs
from holdfast.training.model_outputs import device_of, evaluating
from holdfast.training.precision import autocast

#: Padded tokens of the mini-batch that is measured, and of a pass at most: a processor gains nothing from more.
_PROBED, _ON_CPU, _ON_GPU = 2048, 4096, 16_384
#: Of the memory that is free, what activations may take; allocators and kernels need room of their own.
_SHARE = 0.6


@dataclass(frozen=True)
class Estimate:
    """What a proxy will cost.

    Attributes:
        training: seconds.
        recording: seconds.
        fixed: bytes of weights, gradients and moments.
        per_token: bytes kept for the backward pass, for each padded token.
        most_tokens: padded tokens of a pass.
        available: bytes that are free where the proxy computes.
    """

    training: float
    recording: float
    fixed: int
    per_token: float
    most_tokens: int
    available: int

    @property
    def memory(self) -> int:
        """Bytes at the peak of training."""
        return int(self.fixed + self.per_token * self.most_tokens)

    @property
    def fits(self) -> bool:
        """Whether there is so much memory; the weights are there already."""
        return self.memory <= self.available


def fixed_memory(model: nn.Module) -> int:
    """Bytes of all weights and buffers, and of a gradient and two moments for each weight that is trained."""
    held = sum(part.numel() * part.element_size() for part in [*model.parameters(), *model.buffers()])
    return held + 3 * sum(part.numel() * part.element_size() for part in model.parameters() if part.requires_grad)


def free_memory(device: torch.device, processes: int = 1) -> int:
    """Bytes that are free on a device; a machine's memory is shared among the processes on it."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return free // processes


def tokens_that_fit(free: int, fixed: int, per_token: float, longest: int, device: torch.device) -> int:
    """Padded tokens of a pass: as many as memory allows, at least the longest example's.

    Args:
        free: bytes.
        fixed: bytes that are needed whatever the mini-batch.
        per_token: bytes for each token of it.
        longest: tokens of an example.
        device: that computes.
    """
    most = _ON_CPU if device.type == "cpu" else _ON_GPU
    room = int(max(0.0, _SHARE * free - fixed) / max(per_token, 1.0))
    return max(longest, min(most, room))


def estimate(
    model: nn.Module,
    tokens: TokenPairs,
    trained_on: TokenPairs,
    settings: FineTuningSettings,
    *,
    points: int,
    processes: int = 1,
    by_memory: bool = False,
) -> Estimate:
    """Measure a mini-batch; the model, its gradients and all random numbers stay as they are.

    Args:
        model: on its device.
        tokens: whose losses are recorded.
        trained_on: what it is trained on.
        settings: of the training.
        points: that are recorded.
        processes: that share the work.
        by_memory: choose how many tokens a pass has; by default those of the settings.
    """
    device = device_of(model)
    batch = _typical(trained_on)
    padded = trained_on.batch(batch).input_ids.numel()
    saved = _Saved(model)
    with _undisturbed(model, device), recomputing(model, settings.recompute):
        with saved:
            compute_gradients(model, trained_on, batch, settings)
        training = _seconds(lambda: compute_gradients(model, trained_on, batch, settings), device)
    with evaluating(model), autocast(settings.precision or usual_precision(device), device):
        some = trained_on.batch(batch).to(device)
        recording = _seconds(lambda: example_losses(model, some), device)
    seen = _seen(trained_on, settings)
    fixed, free = fixed_memory(model), free_memory(device, processes)
    per_token = saved.bytes / padded
    fits = tokens_that_fit(free, fixed, per_token, int(tokens.lengths.max()), device)
    return Estimate(
        training / padded * seen / processes,
        recording / padded * points * float(tokens.lengths.sum()) / processes,
        fixed,
        per_token,
        fits if by_memory else settings.most_tokens,
        free,
    )


def _typical(tokens: TokenPairs) -> Ints:
    """Examples of the middle lengths, as many as there is room for."""
    ordered = np.argsort(tokens.lengths, kind="stable")
    count = max(1, min(len(ordered), _PROBED // int(tokens.lengths[ordered[len(ordered) // 2]])))
    start = (len(ordered) - count) // 2
    middle: Ints = ordered[start : start + count]
    return middle


def _seen(tokens: TokenPairs, settings: FineTuningSettings) -> float:
    """Tokens that the training sees."""
    passes = settings.epochs if settings.steps is None else settings.steps * settings.batch_size / len(tokens)
    return passes * float(tokens.lengths.sum())


def _seconds(work: object, device: torch.device) -> float:
    assert callable(work)
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _Saved:
    """Counts the bytes that autograd keeps inside the block, each storage once and weights not at all."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {part.untyped_storage().data_ptr() for part in model.parameters()}
        self._storages: dict[int, int] = {}

    @property
    def bytes(self) -> int:
        return sum(self._storages.values())

    def __enter__(self) -> _Saved:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    training = model.training
    model.train()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        model.zero_grad(set_to_none=True)
        model.train(training)
