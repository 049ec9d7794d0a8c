"""Supervised fine-tuning of a causal language model on prompts and responses, small enough to read.

The loss of an optimizer step is the mean over all response tokens of its examples, as transformers' Trainer computes
it. A step's examples are cut into forward passes of similar lengths and dealt out to the processes there are, whose
gradients are summed in one message: neither changes the step but for rounding. Every epoch is a new permutation from a
stream of its own, so a killed run continues to the bit from its last checkpoint.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import CheckpointError, ConfigError, DataError, Interrupted
from holdfast.finetuning.language_models.losses import response_logits, usual_precision
from holdfast.finetuning.language_models.tokens import IGNORED, Ints, TokenPairs
from holdfast.finetuning.trajectories import TrajectoryRecorder
from holdfast.streams import derive_seed, numpy_stream
from holdfast.training.interruption import interruptions
from holdfast.training.model_outputs import device_of
from holdfast.training.precision import Precision, autocast, check_precision
from holdfast.training.ranks import ALONE, Ranks
from holdfast.training.state import load_state, save_state


@dataclass(frozen=True)
class FineTuningSettings:
    """How a language model is fine-tuned; the defaults are those of S2L's experiments.

    Attributes:
        epochs: passes over the examples.
        steps: optimizer steps instead, whatever the number of examples.
        batch_size: examples of an optimizer step, over all processes.
        learning_rate: AdamW's at its peak.
        weight_decay: AdamW's.
        warmup: share of the steps in which the rate rises; a cosine leads it to 0 afterwards.
        max_norm: longer gradients are cut to this length.
        most_tokens: padded tokens in a forward and backward pass; gradients of several are accumulated to a step.
        precision: in which numbers products are computed; bfloat16 on a GPU that has it where it is None.
        recompute: forget what a block computed and compute it again for its gradient: a third slower, and the memory
            hardly grows with the number of blocks (gradient checkpointing).
        seed: names every random stream.
    """

    epochs: int = 3
    steps: int | None = None
    batch_size: int = 128
    learning_rate: float = 2e-5
    weight_decay: float = 0.0
    warmup: float = 0.03
    max_norm: float = 1.0
    most_tokens: int = 4096
    precision: Precision | None = None
    recompute: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "most_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"steps is {self.steps}; give at least 1")
        if not self.learning_rate > 0 or not 0 <= self.warmup < 1 or not self.max_norm > 0:
            raise ConfigError(
                f"learning_rate is {self.learning_rate}, warmup {self.warmup} and max_norm {self.max_norm}; give a "
                "rate and a norm above 0 and a warm-up share from 0 to 1"
            )

        if self.precision == "fp16":
            raise ConfigError("fp16 needs gradients to be scaled, which language models here are not; give bf16")
        if self.precision is not None:
            check_precision(self.precision)

    def steps_for(self, examples: int) -> int:
        """Optimizer steps of a training on so many examples; an epoch's last step may have fewer examples."""
        return self.steps if self.steps is not None else self.epochs * math.ceil(examples / self.batch_size)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0: linear warm-up, then half a cosine."""
        rising = math.ceil(self.warmup * total)
        if step < rising:
            return self.learning_rate * step / max(1, rising)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, total - rising)))


#: Positions of the examples that a step sees, given the model before it and the number of steps before it.
Feed = Callable[[nn.Module, int], Ints]


@dataclass(frozen=True)
class Progress:
    """How far a training is.

    Attributes:
        doing: ``training``, counted in steps, or ``recording``, counted in examples.
        done: how much of it is done.
        total: how much there is.
        loss: of the last step, while training.
    """

    doing: Literal["training", "recording"]
    done: int
    total: int
    loss: float | None = None


def fine_tune(
    model: nn.Module,
    tokens: TokenPairs,
    settings: FineTuningSettings,
    *,
    recorder: TrajectoryRecorder | None = None,
    feed: Feed | None = None,
    checkpoint: Path | None = None,
    save_every: int | None = None,
    processes: Ranks = ALONE,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Train a model, in place, on all the examples that have a response token.

    Args:
        model: a causal language model of transformers, on its device; parameters that need no gradient stay.
        tokens: the examples.
        settings: how.
        recorder: records losses along the way.
        feed: decides which examples a step sees; by default every epoch is a random permutation.
        checkpoint: where the state is kept; what is there is continued. Not with `feed`, whose state isn't kept.
        save_every: steps between two checkpoints, beside those after the recorder's points; an epoch's by default where
            nothing is recorded.
        processes: those that share the work; all must start from the same weights.
        progress: told after each step and each forward pass of the recorder.

    Raises:
        ConfigError: if there is both a feed and a checkpoint.
        DataError: if no example has a response token, or the loss is no number any more.
        CheckpointError: if the checkpoint belongs to something else.
    """
    if feed is not None and checkpoint is not None:
        raise ConfigError(
            "a training with a feed can't be continued from a checkpoint, because what was fed isn't kept there; leave "
            "out the checkpoint or the feed"
        )
    usable = np.flatnonzero(~tokens.undefined)
    if len(usable) == 0:
        raise DataError("no example has a response token left to learn; raise max_length")
    total = settings.steps_for(len(usable))
    per_epoch = math.ceil(len(usable) / settings.batch_size)
    saved = save_every or (total if recorder else per_epoch)
    trained = {name: part for name, part in model.named_parameters() if part.requires_grad}
    optimizer = torch.optim.AdamW(
        trained.values(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    report = progress or (lambda _: None)
    fed = feed or (lambda _, step: usable[_batch(len(usable), settings.batch_size, settings.seed, step)])
    first = _continued(checkpoint, trained, optimizer, total) if checkpoint else 0
    model.train()
    with recomputing(model, settings.recompute):
        for step in range(first, total):
            batch = fed(model, step)
            for group in optimizer.param_groups:
                group["lr"] = settings.rate(step, total)
            with _dropout(model, derive_seed(settings.seed, "dropout", step, processes.index)):
                share = compute_gradients(model, tokens, batch, settings, processes)
            loss, stop = _reduced(share, list(trained.values()), processes)
            if not math.isfinite(loss):
                raise DataError(f"the loss of step {step + 1} is {loss}; lower the learning rate")
            nn.utils.clip_grad_norm_(trained.values(), settings.max_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done = step + 1
            report(Progress("training", done, total, loss))
            recorded = recorder is not None and recorder.record(
                model, done, lambda seen, of: report(Progress("recording", seen, of))
            )
            asked = None if checkpoint is None else _asked(stop, processes)
            if (
                checkpoint is not None
                and processes.is_main
                and (asked or recorded or done % saved == 0 or done == total)
            ):
                save_state(
                    {"step": done, "total": total, "weights": trained, "optimizer": optimizer.state_dict()}, checkpoint
                )
            if asked is not None:
                raise Interrupted(asked)


def _asked(stop: bool, processes: Ranks) -> int | None:
    """The signal that asked for the end. Of several processes any may have got it, and they agreed during the step."""
    own = interruptions.requested()
    if processes.count == 1:
        return own
    return (own or signal.SIGTERM) if stop else None


def compute_gradients(
    model: nn.Module, tokens: TokenPairs, batch: Ints, settings: FineTuningSettings, processes: Ranks = ALONE
) -> Tensor:
    """Gradients of this process's share of a step, mini-batch by mini-batch.

    Args:
        model: whose gradients are added to.
        tokens: the examples.
        batch: positions of the step's examples.
        settings: of the training.
        processes: those that share the step.

    Returns:
        This process's share of the loss. Like the gradients it is as many times too large as there are processes, whose
        mean is taken.
    """
    device = device_of(model)
    precision = settings.precision or usual_precision(device)
    predicted = int(tokens.predicted[batch].sum())
    loss = torch.zeros((), device=device)
    for positions in tokens.batches(batch, settings.most_tokens, share=(processes.index, processes.count)):
        with autocast(precision, device):
            logits, labels = response_logits(model, tokens.batch(positions).to(device))
            losses = F.cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORED
            )
        share = losses * (processes.count / predicted) if processes.count > 1 else losses / predicted
        share.backward()  # type: ignore[no-untyped-call]
        loss += share.detach()
    return loss


@contextmanager
def recomputing(model: nn.Module, recompute: bool) -> Iterator[None]:
    """Inside the block the model keeps only what goes into its blocks, where that is asked for.

    Raises:
        ConfigError: if the model can't.
    """
    if not recompute:
        yield
        return
    whole = cast(Any, model)
    if not hasattr(whole, "gradient_checkpointing_enable"):
        raise ConfigError("this model can't compute its blocks again for their gradients; leave out recompute")
    whole.gradient_checkpointing_enable({"use_reentrant": False})
    try:
        yield
    finally:
        whole.gradient_checkpointing_disable()


@contextmanager
def _dropout(model: nn.Module, seed: int) -> Iterator[None]:
    """Random numbers of a step from a stream of its own; those of others are untouched."""
    device = device_of(model)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _reduced(loss: Tensor, trained: list[nn.Parameter], processes: Ranks) -> tuple[float, bool]:
    """Give all processes the same gradients, in one message with the loss and whether somebody asked for the end."""
    carrier = torch.zeros_like(loss, requires_grad=True)
    carrier.grad = loss
    stop = processes.average_gradients([*trained, carrier], interruptions.requested() is not None)
    return float(carrier.grad), stop


def _batch(examples: int, size: int, seed: int, step: int) -> Ints:
    """Positions of a step's examples; an epoch is a permutation, its last batch what is left of it."""
    epoch, place = divmod(step, math.ceil(examples / size))
    return _order(examples, seed, epoch)[place * size : (place + 1) * size]


@lru_cache(maxsize=2)
def _order(examples: int, seed: int, epoch: int) -> Ints:
    return numpy_stream(seed, "order", epoch).permutation(examples)


def _continued(path: Path, trained: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, total: int) -> int:
    """Load a checkpoint if there is one; how many steps it has behind it."""
    if not path.exists():
        return 0
    state: dict[str, Any] = load_state(path)
    weights = state["weights"]
    if state["total"] != total or {name: w.shape for name, w in weights.items()} != {
        name: part.shape for name, part in trained.items()
    }:
        raise CheckpointError(
            f"{path} belongs to a training of another model or of {state['total']} steps instead of {total}; "
            "continue with the settings it was started with, or start anew elsewhere"
        )
    with torch.no_grad():
        for name, part in trained.items():
            part.copy_(weights[name])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
