"""How long, how fast and by which optimizer to train; the fields are the options of ``holdfast fit``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.training.policy import PlannedTraining
from holdfast.training.precision import Precision, check_precision


@dataclass(frozen=True)
class Training:
    """Settings of a training run.

    Attributes:
        epochs: passes over the training set, not counting the warm-up a method adds.
        batch_size: examples per mini-batch.
        learning_rate: at the start.
        momentum: of SGD.
        nesterov: look ahead along the momentum (SGD).
        weight_decay: L2 penalty (decoupled for AdamW).
        optimizer: the update rule.
        clip_norm: largest norm of the gradient; larger ones are scaled down. None leaves them.
        decay_all: let weight decay act on biases and normalisation weights too, not on matrices only.
        schedule: how the learning rate moves. `steps` divides it by 10 at each milestone; `linear` falls to 0 epoch by
            epoch, `linear-steps` step by step, counted by the length of the first epoch.
        milestones: where `steps` cuts the learning rate, as fractions of the epochs.
        rate_warmup: fraction of the epochs over which the learning rate rises linearly from near 0.
        select_by: which validation score chooses the checkpoint; `worst_class`, `accuracy` and `min_class_difference`
            do without validation group labels.
        ties: which of several epochs with the same score is kept: the one with the highest `accuracy` on validation
            data, or the `first`, as in published programs.
        augment: random changes of the training images: `crop` moves by up to 4 pixels, `flip` mirrors left and right.
        epoch_size: draws per epoch; by default one pass over what the method keeps.
        seed: names every random stream.
        device: where to train: cpu, cuda, cuda:1, mps; auto takes CUDA, else MPS, else the CPU. Numbers are promised to
            the bit on the CPU only, so it is the default also where there is a GPU.
        threads: CPU threads of torch; small models are fastest with 1. By default torch decides.
        precision: what the model's products are computed in, by torch's autocast: bf16 is the one to try on GPUs and on
            CPUs that have it; fp16 scales its gradients. Weights, losses and decisions stay in float32, and a method
            that would decide otherwise than in fp32 is warned of.
        accumulate: mini-batches per optimizer step: with 4, a step sees 4 x batch_size examples at the memory of one
            batch_size. A method that looks at a batch as a whole (group-dro, cvar, cnc ...) sees the whole step, for
            one more forward pass.
        compile: let torch.compile make kernels of the model; the first steps take minutes, and a C++ compiler must be
            there.
        channels_last: keep images with their channels last in memory, which many convolutions are faster with.
        pin_memory: copy mini-batches to a GPU from page-locked memory, while it computes.
        workers: processes that read the next mini-batches where inputs are read from files or computed; by default one
            for each core but one, up to 8. What is in memory needs none. 0 reads in the training process.
        checkpoint_seconds: how often to save the state inside an epoch; it is saved after each epoch anyway.
    """

    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    clip_norm: float | None = None
    decay_all: bool = True
    schedule: Literal["constant", "steps", "cosine", "linear", "linear-steps"] = "constant"
    milestones: tuple[float, ...] = (0.6, 0.85)
    rate_warmup: float = 0.0
    select_by: Literal[
        "worst_group",
        "group_mean",
        "train_mix",
        "worst_class",
        "worst_group_or_class",
        "accuracy",
        "min_class_difference",
    ] = "worst_group"
    ties: Literal["accuracy", "first"] = "accuracy"
    augment: Literal["none", "crop", "flip", "crop-flip"] = "none"
    epoch_size: int | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "fp32"
    accumulate: int = 1
    compile: bool = False
    channels_last: bool = False
    pin_memory: bool = False
    workers: int | None = None
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")
        for name in ("learning_rate", "weight_decay", "checkpoint_seconds"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)}; give a finite number")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}; give a positive number")
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay is {self.weight_decay}; give 0 or a positive number")
        self._check_speed()
        if self.epoch_size is not None and self.epoch_size < 1:
            raise ConfigError(f"epoch_size is {self.epoch_size}; give at least 1, or none for one pass")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum is {self.momentum}; give a number from 0 to below 1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm is {self.clip_norm}; give a positive number, or none to leave gradients")
        if self.nesterov and self.momentum == 0:
            raise ConfigError("nesterov needs momentum and it is 0; give a momentum or turn nesterov off")
        if not 0 <= self.rate_warmup < 1:
            raise ConfigError(f"rate_warmup is {self.rate_warmup}; give a fraction of the epochs, from 0 to below 1")
        if any(not 0 < point < 1 for point in self.milestones):
            raise ConfigError(f"milestones are {self.milestones}; give fractions of the epochs between 0 and 1")

    def _check_speed(self) -> None:
        check_precision(self.precision)
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers is {self.workers}; give 0 to read in the training process, or more")

    @property
    def step_size(self) -> int:
        """Examples per optimizer step."""
        return self.batch_size * self.accumulate

    @property
    def planned(self) -> PlannedTraining:
        """What policies are told before training; their mini-batches are what an optimizer step sees."""
        return PlannedTraining(self.epochs, self.step_size, self.augment != "none")


def build_optimizer(model: nn.Module, settings: Training) -> torch.optim.Optimizer:
    """The optimizer that `settings` ask for, over the parameters that train; fused, which halves its time on a CPU."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ConfigError("the model has no parameters that train; unfreeze some")
    parameters: Any = trained
    if not settings.decay_all:
        parameters = [
            {"params": [parameter for parameter in trained if parameter.ndim > 1]},
            {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "sgd":
        momentum, nesterov = settings.momentum, settings.nesterov
        return torch.optim.SGD(
            parameters, lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay, fused=True
        )
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=True)
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)


def learning_rate_factor(settings: Training, progress: float) -> float:
    """What the learning rate is multiplied by after a fraction of the epochs.

    Args:
        settings: the schedule.
        progress: fraction of the epochs that is over, in [0, 1).

    Returns:
        A factor in [0, 1].

    Example:
        >>> learning_rate_factor(Training(schedule="steps"), 0.7)
        0.1
    """
    if progress < settings.rate_warmup:
        return (progress + 1 / settings.epochs) / (settings.rate_warmup + 1 / settings.epochs)
    if settings.schedule == "steps":
        return float(0.1 ** sum(progress >= point for point in settings.milestones))
    after = (progress - settings.rate_warmup) / (1 - settings.rate_warmup)
    if settings.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * after))
    if settings.schedule in ("linear", "linear-steps"):
        return 1 - after
    return 1.0
