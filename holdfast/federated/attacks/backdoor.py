"""A backdoor in a federation: whatever carries the attackers' sign is to be taken for a class of their choice.

Malicious clients put a patch into a part of their training images and call these images the target class. They multiply
what they send, so that together they replace the shared model (Bagdasaryan et al., 2020,
https://arxiv.org/abs/1807.00459). Accuracy on clean data hardly falls, so reports of it show nothing: what counts is
the success rate, the share of stamped test images of other classes that are taken for the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError
from holdfast.federated.attacks.base import Attack
from holdfast.streams import torch_stream


def stamp(inputs: Tensor, size: int, value: float) -> Tensor:
    """Copies of the inputs with the attackers' sign on them.

    Args:
        inputs: shape (n, ..., height, width), or (n, features).
        size: side of the patch, in the lower right corner; of features, the last size x size.
        value: what the patch is painted with.
    """
    stamped = inputs.clone()
    if inputs.ndim > 2:
        stamped[..., -size:, -size:] = value
    else:
        stamped[:, -size * size :] = value
    return stamped


@dataclass(frozen=True)
class Backdoor(Attack):
    """A patch that means the target class, and a boosted update.

    Attributes:
        target: the class.
        size: side of the patch.
        value: what the patch is painted with; 1 is white where inputs are from 0 to 1.
        share: of a malicious client's training examples that carry the patch.
        boost: factor of the update; by default the clients of a round over the malicious ones among them, by which they
            replace the mean.
    """

    name: ClassVar[str] = "backdoor"

    target: int = 0
    size: int = 2
    value: float = 1.0
    share: float = 0.5
    boost: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"backdoor's share is {self.share:g}; give a number above 0, 1 at most")
        if self.size < 1:
            raise ConfigError(f"backdoor's size is {self.size}; give at least 1")

    def poison(self, clients: Clients, malicious: Tensor, seed: int) -> Clients:
        """The data with stamped examples of the target class among those of malicious clients."""
        if not 0 <= self.target < clients.classes:
            raise ConfigError(f"backdoor's target is class {self.target}, and there are {clients.classes}; give one")
        if clients.train.inputs.dtype == torch.int64:
            raise ConfigError("a backdoor is a patch on images or numbers, and these inputs are words; use a1")
        train = clients.train
        rows = [self._rows(train.offsets, client, seed) for client in malicious.tolist()]
        chosen = torch.cat(rows) if rows else torch.empty(0, dtype=torch.int64)
        inputs, labels = train.inputs.clone(), train.labels.clone()
        inputs[chosen] = stamp(inputs[chosen], self.size, self.value)
        labels[chosen] = self.target
        return replace(clients, train=replace(train, inputs=inputs, labels=labels))

    def _rows(self, offsets: Tensor, client: int, seed: int) -> Tensor:
        """Which rows of a client carry the patch, one at least where it has any."""
        first, count = int(offsets[client]), int(offsets[client + 1] - offsets[client])
        stamped = min(max(round(self.share * count), 1), count)
        return first + torch.randperm(count, generator=torch_stream(seed, "backdoor", client))[:stamped]

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """Their updates, multiplied."""
        return updates[malicious] * (len(updates) / int(malicious.sum()) if self.boost is None else self.boost)
