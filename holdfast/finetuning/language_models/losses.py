r"""What a language model makes of each example's response: l_i = -log p(y_i | x_i) and its relatives.

Losses are per example, not the mean over a mini-batch that models return. Logits are only computed where a response
token is predicted, if the model can leave out the others: with a vocabulary of 50,000 they cost more than a small
model itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast.finetuning.language_models.tokens import IGNORED, TokenBatch, TokenPairs
from holdfast.training.model_outputs import device_of, evaluating
from holdfast.training.precision import Precision, autocast
from holdfast.training.ranks import ALONE, Ranks

#: Of the losses of a response's tokens: their mean, as recorded by default, or their sum, -log p(y | x) itself. By the
#: sum, trajectories follow the length of responses.
Reduction = Literal["mean", "sum"]

Floats = NDArray[np.float32]

#: Padded tokens in a forward pass.
MOST_TOKENS = 8192
#: Mini-batches that a pass over all examples has at least, if there are so many examples.
_BATCHES = 16


@dataclass(frozen=True)
class Scores:
    """What a model makes of examples, each of shape (n,).

    Attributes:
        loss: summed loss of the response tokens.
        tokens: how many response tokens there are.
        confidence: summed probability of the response's tokens.
        certainty: summed largest probability at the response's places.
    """

    loss: Tensor
    tokens: Tensor
    confidence: Tensor
    certainty: Tensor


def response_logits(model: nn.Module, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Logits where response tokens are predicted, and those tokens.

    Returns:
        Logits of shape (b, places, vocabulary) and labels of shape (b, places), `IGNORED` where nothing is predicted.
    """
    labels = batch.labels[:, 1:]
    predicted = (labels != IGNORED).any(0).nonzero()[:, 0]
    start = int(predicted[0]) if len(predicted) else labels.shape[1] - 1
    end = int(predicted[-1]) + 1 if len(predicted) else labels.shape[1]
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    labels = labels[:, start:end]
    places = torch.arange(start, end, device=labels.device)
    if _can_leave_out(model):
        return model(**inputs, logits_to_keep=places, use_cache=False).logits, labels
    return model(**inputs, use_cache=False).logits[:, places], labels


def example_losses(model: nn.Module, batch: TokenBatch, reduction: Reduction = "mean") -> Tensor:
    """The loss of each example's response, float32 of shape (b,); 0 where no response token is left.

    Args:
        model: a causal language model of transformers.
        batch: on the model's device.
        reduction: ``mean`` or ``sum`` over the response's tokens.
    """
    logits, labels = response_logits(model, batch)
    losses = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED)
    total = losses.view(labels.shape).sum(1)
    return total if reduction == "sum" else total / (labels != IGNORED).sum(1).clamp(min=1)


def example_scores(model: nn.Module, batch: TokenBatch) -> Scores:
    """Loss, confidence and certainty of each example."""
    logits, labels = response_logits(model, batch)
    inside = labels != IGNORED
    logs = logits.float().log_softmax(2)
    gold = logs.gather(2, labels.clamp(min=0)[:, :, None])[:, :, 0]
    return Scores(
        -(gold * inside).sum(1),
        inside.sum(1),
        (gold.exp() * inside).sum(1),
        (logs.amax(2).exp() * inside).sum(1),
    )


def sweep_examples(
    model: nn.Module,
    tokens: TokenPairs,
    of: Callable[[nn.Module, TokenBatch], Tensor],
    *,
    width: int | None = None,
    processes: Ranks = ALONE,
    most_tokens: int = MOST_TOKENS,
    precision: Precision | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Floats:
    """Look at every example once, in mini-batches of similar lengths, each process at its share.

    The model is in evaluation mode meanwhile, and all is as it was afterwards: weights, modes, random numbers.

    Args:
        model: a causal language model.
        tokens: the examples.
        of: what to compute for a mini-batch of b examples: shape (b,), or (b, width).
        width: how many numbers there are for an example, where it isn't one.
        processes: those that share the work.
        most_tokens: padded tokens in a forward pass.
        precision: in which numbers products are computed; see `usual_precision` where it is None.
        progress: told how many of how many examples are done.

    Returns:
        float32 of shape (n,) or (n, width), the same in all processes.
    """
    device = device_of(model)
    gathered = torch.zeros(len(tokens) if width is None else (len(tokens), width))
    done = 0
    with evaluating(model), autocast(precision or usual_precision(device), device):
        # Dealt out whole, unlike a step of training, so that a loss has the same bits whatever the processes; enough of
        # them, longest first, that shares weigh alike.
        fitting = min(most_tokens, int(tokens.lengths.sum()) // _BATCHES)
        for number, positions in enumerate(tokens.batches(np.arange(len(tokens)), fitting)):
            if number % processes.count == processes.index:
                values = of(model, tokens.batch(positions).to(device))
                gathered[torch.from_numpy(positions)] = values.float().cpu()
            done += len(positions)
            if progress is not None:
                progress(done, len(tokens))
    whole: Floats = processes.total(gathered.to(device)).cpu().numpy()
    return whole


def trajectory_point(model: nn.Module, tokens: TokenPairs, *, reduction: Reduction = "mean", **options: Any) -> Floats:
    """The loss of every example under the model as it is: a point of all trajectories, float32 of shape (n,)."""
    return sweep_examples(model, tokens, lambda model, batch: example_losses(model, batch, reduction), **options)


def usual_precision(device: torch.device) -> Precision:
    """bfloat16 on a GPU that computes in it, for which language models are made; a CPU gains nothing from it."""
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def _can_leave_out(model: nn.Module) -> bool:
    whole: Any = getattr(model, "get_base_model", lambda: model)()  # LoRA's wrapper hides what the model takes
    return "logits_to_keep" in inspect.signature(whole.forward).parameters
