"""Losses and gradient proxies of some examples, from one forward pass that leaves no trace in the model.

Neither dropout nor any generator takes part, and batch-norm buffers are what they were. With ``batch`` statistics,
batch norm normalises by the examples of the same pass, as in training, so that the loss is a function of the weights
alone: with ``running`` ones it would drift with the buffers between two passes. ``weighted`` ones weigh the examples of
a coreset as its loss does. Networks without batch norm see no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.coresets.crest.batch_norm import weighted_batch_norm
from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, HoldfastError
from holdfast.models.compiled import running_uncompiled
from holdfast.models.heads import at_least_float32, features_and_logits, find_head
from holdfast.models.modes import evaluation_mode
from holdfast.primitives.per_example import per_example_gradients
from holdfast.primitives.similarity import LastLayerGradients, Metric
from holdfast.training.model_outputs import call, device_of, to_device

Statistics = Literal["batch", "weighted", "running"]

#: What stands for an example's gradient: ``logit``, softmax minus one-hot; ``feature``, the gradient with respect to
#: the last layer's input; ``last_layer``, to the last layer's weights and bias; ``full``, to all weights.
Proxy = Literal["logit", "feature", "last_layer", "full"]

_CHUNK = 1024  # examples in a forward pass, where there are more


def check_metric(policy: str, proxy: str, metric: Metric) -> None:
    """Refuse cosines of gradients that are only known by their factors."""
    if metric == "cosine" and proxy == "last_layer":
        raise ConfigError(f"{policy} has no cosines of last-layer gradients; use metric 'euclidean' or proxy 'logit'")


@dataclass(frozen=True, eq=False)
class GradientProxies:
    """What a model makes of some examples.

    Attributes:
        positions: of the examples, int64 of shape (r,).
        losses: cross-entropy of each, float32 of shape (r,).
        proxies: what stands for the gradient of each, see `Proxy`; none where only losses were asked for.
    """

    positions: Tensor
    losses: Tensor
    proxies: Tensor | LastLayerGradients | None = None


@contextmanager
def undisturbed(model: nn.Module, statistics: Statistics) -> Iterator[None]:
    """Evaluation mode inside the block, except for batch norm where it is to use the batch's statistics."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    # Other tensors stand in for the buffers: a tape that leads through the originals must find them untouched.
    originals = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in originals:
        setattr(norm, name, buffer.clone())
    try:
        with evaluation_mode(model):
            if statistics != "running":
                for norm in norms:
                    norm.train()
            yield
    finally:
        for norm, name, buffer in originals:
            setattr(norm, name, buffer)


def gradient_proxies(
    model: nn.Module,
    examples: Examples,
    positions: Tensor,
    *,
    proxy: Proxy | None = None,
    statistics: Statistics = "batch",
    head: str | None = None,
) -> GradientProxies:
    """Losses, and proxies where asked for, of the examples at `positions`, without augmentation.

    Args:
        model: the model.
        examples: the set.
        positions: which examples; up to 1,024 of them share their batch statistics.
        proxy: what is to stand for a gradient.
        statistics: what batch norm goes by.
        head: name of the model's last linear layer where it can't be found.

    Returns:
        Losses and proxies, on the CPU.

    Raises:
        HoldfastError: if a loss is not finite.
    """
    device = device_of(model)
    losses, residuals, features = list[Tensor](), list[Tensor](), list[Tensor]()
    # Uncompiled: other buffers stand in for the model's, which a compiled graph would compile anew for.
    with undisturbed(model, statistics), torch.no_grad(), running_uncompiled():
        for chunk in torch.tensor_split(positions, math.ceil(len(positions) / _CHUNK)):
            inputs, labels = examples.gather(chunk)
            inputs, labels = to_device(inputs, device), labels.to(device)
            if proxy in ("last_layer", "feature"):
                last, logits = features_and_logits(model, inputs, head=head)
                features.append(last.cpu())
            else:
                logits = call(model, inputs)
            losses.append(F.cross_entropy(logits, labels, reduction="none").float().cpu())
            if proxy is not None:
                residuals.append((logits.softmax(1) - F.one_hot(labels, logits.shape[1])).cpu())
    all_losses = torch.cat(losses)
    if not bool(torch.isfinite(all_losses).all()):
        raise HoldfastError("the loss of some examples is not finite: training has diverged; lower the learning rate")
    if proxy is None:
        return GradientProxies(positions, all_losses)
    residual = torch.cat(residuals)
    if proxy == "logit":
        return GradientProxies(positions, all_losses, residual)
    if proxy == "feature":
        weight = at_least_float32(find_head(model, head)[1].weight.detach().cpu())
        return GradientProxies(positions, all_losses, residual @ weight)
    if proxy == "last_layer":
        return GradientProxies(positions, all_losses, LastLayerGradients(residual, torch.cat(features)))
    return GradientProxies(positions, all_losses, _full_gradients(model, examples, positions))


def weighted_loss(
    model: nn.Module, examples: Examples, positions: Tensor, weights: Tensor, statistics: Statistics = "batch"
) -> Tensor:
    """mean(weight x loss) of some examples, without augmentation, as something to differentiate twice.

    Attention is computed by its plain formula, because the fused kernels have no second derivatives, and so have the
    graphs of `torch.compile`. It is in the precision of the weights: curvature has no digits to spare.
    """
    device = device_of(model)
    inputs, labels = examples.gather(positions)
    weighing = weighted_batch_norm if statistics == "weighted" else _plainly
    with (
        undisturbed(model, statistics),
        weighing(model, weights.to(device)),
        sdpa_kernel(SDPBackend.MATH),
        running_uncompiled(),
    ):
        losses = F.cross_entropy(call(model, to_device(inputs, device)), labels.to(device), reduction="none")
    return (weights.to(device) * losses).mean()


@contextmanager
def _plainly(model: nn.Module, weights: Tensor) -> Iterator[None]:
    yield


def _full_gradients(model: nn.Module, examples: Examples, positions: Tensor) -> Tensor:
    """Per-example gradients need running statistics: batch statistics mix the examples."""
    inputs, labels = examples.gather(positions)
    inputs, device = to_device(inputs, device_of(model)), device_of(model)
    if not isinstance(inputs, Tensor):
        raise ConfigError("the proxy 'full' needs inputs that are one tensor; for texts take 'feature' or 'last_layer'")
    with undisturbed(model, "running"):
        return per_example_gradients(model, inputs, labels.to(device), chunk=_CHUNK // 8).cpu()
