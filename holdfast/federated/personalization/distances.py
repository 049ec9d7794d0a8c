"""How far a personal model is from the shared one, other than straight: in what matters, or in what it predicts.

Ditto's pull is half the squared distance of parameters. Its Appendix C names others, for personal models trained
alongside the shared one or after it: elastic weight consolidation weighs each parameter by its Fisher information, the
symmetrised KL divergence compares predictions. Here are their gradients, which a method multiplies by lambda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.federated.engine.client_batch import ClientBatch
    from holdfast.federated.engine.network import Network
    from holdfast.federated.engine.stacked_clients import StackedClients

#: Distances by name: straight, by Fisher information, or between predictions.
Distance = Literal["l2", "ewc", "skl"]
#: What is squared for the Fisher information: the gradient of each mini-batch, or of each example.
Fisher = Literal["batches", "examples"]

_FISHER_BATCHES = 4


def fisher_diagonal(stack: StackedClients, of: Fisher = "batches") -> Tensor:
    """The empirical Fisher diagonal of each client at the shared model, over four mini-batches.

    The empirical Fisher information is the mean over examples of the squared gradient of each example's loss:
    ``examples``. The documents' program squares the mean gradient of each mini-batch instead, ``batches``. Where
    gradients of examples are independent with mean g and variance s, that is ``g^2 + s / B`` for batches of B instead
    of ``g^2 + s``: close to an optimum, smaller by about the batch size.

    Args:
        stack: the clients; `StackedClients.received` is where gradients are taken.
        of: what is squared.

    Returns:
        Shape (clients, P).

    Raises:
        ConfigError: if examples have no gradients of their own, since the model normalises batches.
    """
    if of == "examples" and stack.network.normalises_batches:
        raise ConfigError(
            f"in {stack.network.called} an example's gradient depends on the others of its batch, which are normalised "
            "together; use fisher batches"
        )
    models = stack.copies()
    squares = torch.zeros_like(models)
    for batch in stack.batches(torch.full_like(stack.steps, _FISHER_BATCHES)):
        if of == "batches":
            squares += stack.network.gradient(models, batch).square_()
            continue
        for place in range(batch.labels.shape[1]):
            share, example = batch.weights[:, place : place + 1], batch.example(place)
            squares += stack.network.gradient(models, example).square_().mul_(share)
    return squares.div_(_FISHER_BATCHES)


def divergence_gradient(network: Network, models: Tensor, others: Tensor, batch: ClientBatch) -> Tensor:
    """Gradient at `models` of half the symmetrised KL divergence from the predictions of `others`, on a batch.

    Args:
        network: the model; as in evaluation.
        models: shape (clients, P).
        others: of the same shape.
        batch: a mini-batch of each client.

    Returns:
        Shape (clients, P).
    """
    with torch.no_grad():
        target = network.outputs(others, batch.inputs)
    at = models.detach().requires_grad_()
    divergence = symmetric_divergence(_logits(network, network.outputs(at, batch.inputs)), _logits(network, target))
    (gradient,) = torch.autograd.grad((divergence * batch.weights).sum() / 2, at)
    return gradient


def symmetric_divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of the softmax of two sets of logits, shape (..., classes) to (...)."""
    log_p, log_q = F.log_softmax(logits, -1), F.log_softmax(others, -1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)


def _logits(network: Network, outputs: Tensor) -> Tensor:
    """Outputs as logits of classes; a single margin is the logit of class 1 against 0."""
    return F.pad(outputs, (1, 0)) if network.task == "margin" else outputs
