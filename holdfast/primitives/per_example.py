"""Gradients of single examples with respect to all parameters, by torch.func: exact, and as large as they are.

For selection the last layer usually says enough and costs nothing (`LastLayerGradients`); these are for small networks,
for diagnostics, and for tests of everything that claims to be cheaper.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from holdfast.models.compiled import running_uncompiled, uncompiled
from holdfast.models.heads import as_weights, at_least_float32, logits_of


def per_example_gradients(model: nn.Module, inputs: Tensor, labels: Tensor, *, chunk: int | None = None) -> Tensor:
    """The gradient of each example's cross-entropy with respect to the parameters that train.

    Args:
        model: in evaluation mode, or without layers that mix examples: batch statistics have no gradient per example.
        inputs: of shape (n, ...).
        labels: int64 of shape (n,).
        chunk: how many examples at a time; all by default.

    Returns:
        Shape (n, trained parameters), in the order of ``model.parameters()``.
    """
    model = uncompiled(model)
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    rest |= {name: buffer.detach() for name, buffer in model.named_buffers()}

    def loss(parameters: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = logits_of(functional_call(model, {**parameters, **rest}, (as_weights(model, one[None]),)))
        return F.cross_entropy(logits, label[None])

    with running_uncompiled():  # no gradient of a single example goes through a compiled graph
        gradients = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=chunk)(trained, inputs, labels)
    return torch.cat([at_least_float32(gradients[name].flatten(1)) for name in trained], 1)
