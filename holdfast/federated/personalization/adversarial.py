"""Adversarial examples of clients' data, made once and for all by the frozen shared model, and how they transfer.

What fools the shared model leans on the features it uses. A personal model that is no longer fooled has moved to other
features: the drop in transferability is what can be seen of that without data of another environment (Personalized FL
with spurious features, Sections 3.2 and 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.engine.network import Network
from holdfast.primitives.pgd import Pgd

#: The share of training examples that should fool the shared model.
TARGET, TOO_STRONG = 0.3, 0.5
_SHRINK, _BISECTIONS = 0.8, 12


@dataclass(frozen=True, eq=False)
class Crafted:
    """Examples of some clients, client after client, and what the shared model makes of them.

    Attributes:
        inputs: adversarial, shape (n, ...).
        clean: the inputs they were made from, of the same shape.
        labels: true ones, shape (n,).
        logits: of the shared model at `inputs`, shape (n, classes).
        clean_logits: of the shared model at `clean`.
        starts: where each client's examples begin, and the end, int64 of shape (clients + 1,).
        offsets: row of each client's first example in the data they come from, int64 of shape (clients,).
    """

    inputs: Tensor
    clean: Tensor
    labels: Tensor
    logits: Tensor
    clean_logits: Tensor
    starts: Tensor
    offsets: Tensor

    def places(self, batch: ClientBatch) -> Tensor:
        """Where a batch's examples are among these, int64 of shape (clients, batch); its clients are the first ones."""
        first = self.starts[: len(batch)] - self.offsets[: len(batch)]
        return batch.rows + first[:, None]

    def of(self, place: int) -> slice:
        """Rows of the client at that place."""
        return slice(int(self.starts[place]), int(self.starts[place + 1]))


def craft(network: Network, shared: Tensor, part: ClientPart, clients: Tensor, attack: Pgd) -> Crafted:
    """Attack the shared model at some clients' examples.

    Args:
        network: the network.
        shared: the shared model, shape (P,).
        part: the data.
        clients: ids, in the order in which they are wanted.
        attack: with its budget.
    """
    model = network.load(shared)
    counts = part.counts[clients]
    rows = torch.cat([torch.arange(*part.offsets[client : client + 2].tolist()) for client in clients.tolist()])
    clean, labels = part.inputs[rows].to(network.device), part.labels[rows].to(network.device)
    inputs = attack(model, clean, labels, network.losses)
    with torch.no_grad():
        logits, clean_logits = (_outputs(network, shared, at) for at in (inputs, clean))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return Crafted(inputs, clean, labels, logits, clean_logits, starts, part.offsets[clients])


@dataclass(frozen=True)
class Transfer:
    """How the adversarial examples of a client fare against another model.

    Attributes:
        rate: share of those that fool the shared model which fool this one; no number where there are none.
        rate_of_correct: the same among examples that the shared model tells right before they are attacked.
        same_class: share of those that fool the shared model which this one takes for the same wrong class.
        loss: mean of what the attack adds to the shared model's loss minus what it adds to this one's (Eq. 3).
    """

    rate: float
    rate_of_correct: float
    same_class: float
    loss: float


@torch.no_grad()
def transfer(network: Network, model: Tensor, crafted: Crafted, place: int) -> Transfer:
    """Transferability to a client's model, shape (P,), of the examples of the client at that place."""
    rows = crafted.of(place)
    labels, logits, clean_logits = crafted.labels[rows], crafted.logits[rows], crafted.clean_logits[rows]
    own, own_clean = (_outputs(network, model, inputs[rows]) for inputs in (crafted.inputs, crafted.clean))
    fooled, right_before = ~network.correct(logits, labels), network.correct(clean_logits, labels)
    fools = ~network.correct(own, labels)
    hurt = network.losses(logits, labels) - network.losses(clean_logits, labels)
    own_hurt = network.losses(own, labels) - network.losses(own_clean, labels)
    return Transfer(
        _share(fools, fooled),
        _share(fools, fooled & right_before),
        _share(own.argmax(-1) == logits.argmax(-1), fooled),
        float((hurt - own_hurt).double().mean()) if len(labels) else float("nan"),
    )


@dataclass(frozen=True)
class Budget:
    """What the search for a budget found.

    Attributes:
        epsilon: the budget.
        path: every budget that was tried and its success.
        weak: whether even the first budget fools too few, so that it was kept.
    """

    epsilon: float
    path: tuple[tuple[float, float], ...]
    weak: bool


def search_budget(training: LocalTraining, shared: Tensor, attack: Pgd) -> Budget:
    """The largest budget with which the attack fools the shared model on 30 to 50 percent of the training examples.

    Counted are the examples of all clients that the model tells right; examples far beyond its decision boundary would
    say little about it. From the attack's own budget on it is lowered by a fifth at a time; where that jumps over the
    range, it is bisected.

    Args:
        training: has the training data of all clients.
        shared: the shared model, shape (P,).
        attack: with the first budget.
    """
    part, network = training.clients.train, training.network
    model = network.load(shared)
    with torch.no_grad():
        inputs, labels = part.inputs.to(network.device), part.labels.to(network.device)
        right = network.correct(_outputs(network, shared, inputs), labels)
    inputs, labels = inputs[right], labels[right]
    path: list[tuple[float, float]] = []

    def success(epsilon: float) -> float:
        moved = attack.within(epsilon)(model, inputs, labels, network.losses)
        with torch.no_grad():
            fooled = ~network.correct(_outputs(network, shared, moved), labels)
        path.append((epsilon, float(fooled.double().mean()) if len(labels) else 0.0))
        return path[-1][1]

    high, low = attack.epsilon, attack.epsilon
    while success(low) > TOO_STRONG:
        high, low = low, _SHRINK * low
    if len(path) > 1:
        for _ in range(_BISECTIONS):
            if path[-1][1] > TOO_STRONG:
                high = path[-1][0]
            elif path[-1][1] < TARGET:
                low = path[-1][0]
            else:
                break
            success((low + high) / 2)
    return Budget(path[-1][0], tuple(path), weak=len(path) == 1 and path[0][1] < TARGET)


def _outputs(network: Network, model: Tensor, inputs: Tensor) -> Tensor:
    blocks = [network.outputs(model[None], block[None])[0] for block in torch.split(inputs, 1024)]
    return torch.cat(blocks) if blocks else model.new_zeros(0, 1)


def _share(of: Tensor, among: Tensor) -> float:
    return float(of[among].double().mean()) if among.any() else float("nan")
