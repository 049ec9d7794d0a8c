"""Loss and accuracy of every client: of one shared model, or of a model per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart

if TYPE_CHECKING:
    from holdfast.federated.engine.network import Network

#: Which examples of a client.
PartName = Literal["train", "validation", "test", "elsewhere"]

#: Examples that run through models at once.
_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class ClientScores:
    """How clients fare.

    Attributes:
        clients: ids, int64 of shape (clients,).
        loss: mean loss of each, float64; zero where it has no examples.
        correct: number of examples told right, int64; where scores are something else, their sum, float64.
        count: number of examples, int64.
    """

    clients: Tensor
    loss: Tensor
    correct: Tensor
    count: Tensor

    @property
    def accuracy(self) -> Tensor:
        """Share told right, or the mean score, float64; zero where a client has no examples."""
        return self.correct / self.count.clamp(min=1).double()


def gather(scores: Sequence[ClientScores]) -> ClientScores:
    """Scores of disjoint clients as one, ascending by client."""
    clients = torch.cat([part.clients for part in scores])
    order = torch.argsort(clients)
    fields = ("loss", "correct", "count")
    return ClientScores(
        clients[order], *(torch.cat([getattr(part, name) for part in scores])[order] for name in fields)
    )


@torch.no_grad()
def score_shared(network: Network, model: Tensor, part: ClientPart, clients: Tensor) -> ClientScores:
    """Scores of one model on the data of some clients.

    Args:
        network: the network.
        model: parameters, shape (P,).
        part: the data.
        clients: ids.
    """
    if network.scores_depend_on_batch:
        return gather([score_models(network, model[None], part, client[None]) for client in clients])
    counts = part.counts[clients]
    owners = torch.repeat_interleave(torch.arange(len(clients)), counts)
    first = torch.cumsum(counts, 0) - counts
    rows = torch.arange(len(owners)) - first[owners] + part.offsets[clients][owners]
    loss, correct = torch.zeros(len(clients), dtype=torch.float64), _no_scores(network, len(clients))
    for block, owner in zip(torch.split(rows, _BLOCK), torch.split(owners, _BLOCK), strict=True):
        inputs, labels = (each.to(network.device) for each in part.gather(block))
        outputs = network.outputs(model[None], inputs[None])[0]
        # Sums are made on the host, where every number there is can be had in double precision.
        loss.index_add_(0, owner, network.losses(outputs, labels).cpu().double())
        correct.index_add_(0, owner, network.scores(outputs, labels).cpu().to(correct.dtype))
    return ClientScores(
        clients, loss / counts.clamp(min=1) + network.penalty(model[None]).cpu().double(), correct, counts
    )


@torch.no_grad()
def score_models(network: Network, models: Tensor, part: ClientPart, clients: Tensor) -> ClientScores:
    """Scores of a model per client, each on its own data.

    Args:
        network: the network.
        models: parameters, shape (clients, P).
        part: the data.
        clients: ids.
    """
    counts = part.counts[clients]
    width = int(counts.max())
    if width == 0:
        nothing = _no_scores(network, len(clients))
        return ClientScores(clients, nothing.double(), nothing, counts)
    loss, correct = torch.zeros(len(clients), dtype=torch.float64), _no_scores(network, len(clients))
    done = 0
    while done < width:
        left = (counts > done).nonzero().flatten()
        columns = torch.arange(done, width if network.scores_depend_on_batch else done + _columns(counts[left] - done))
        real = columns < counts[left, None]
        rows = part.offsets[clients[left]][:, None] + torch.minimum(columns, counts[left, None] - 1)
        inputs, labels = (each.to(network.device) for each in part.gather(rows))
        outputs = network.outputs(models[left], inputs)
        loss[left] += (network.losses(outputs, labels).cpu().double() * real).sum(1)
        correct[left] += (network.scores(outputs, labels).cpu().to(correct.dtype) * real).sum(1)
        done = int(columns[-1]) + 1
    return ClientScores(clients, loss / counts.clamp(min=1) + network.penalty(models).cpu().double(), correct, counts)


def _no_scores(network: Network, clients: int) -> Tensor:
    return torch.zeros(clients, dtype=torch.int64 if network.criterion.is_accuracy else torch.float64)


def _columns(left: Tensor) -> int:
    """How many examples of each client to look at next: half of the clients are done then, so little is padded.

    Args:
        left: examples left of each client.
    """
    return max(min(int(left.median()), _BLOCK // len(left)), 1)
