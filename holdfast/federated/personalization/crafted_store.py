"""Adversarial examples that are kept from one personalization of a federation to the next.

They come from the frozen shared model and the attack's budget alone, and the attack is most of what a personalization
costs; the search for coefficients (`holdfast.federated.personalization.transferability`) runs up to seventeen of them.
What is kept is bounded in bytes and goes with the federation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from holdfast.federated.engine.local_training import LocalTraining
from holdfast.federated.personalization.adversarial import Crafted
from holdfast.primitives.pgd import Pgd

#: Bytes that are kept of a federation; what is beyond is made anew each time.
_LARGEST = 256 * 2**20


@dataclass(eq=False)
class CraftedStore:
    """What was made from one model by one attack.

    Attributes:
        shared: the model, shape (P,).
        attack: with its budget.
        made: by part of the data and clients.
        left: bytes for what is not there yet.
    """

    shared: Tensor
    attack: Pgd
    made: dict[tuple[str, tuple[int, ...]], Crafted] = field(default_factory=dict)
    left: int = field(default_factory=lambda: _LARGEST)

    @classmethod
    def of(cls, training: LocalTraining, shared: Tensor, attack: Pgd) -> CraftedStore:
        """The one of a federation; a new one takes its place where the model or the attack is another."""
        kept = _STORES.get(training)
        if kept is None or kept.attack != attack or not torch.equal(kept.shared, shared):
            kept = _STORES[training] = cls(shared.clone(), attack)
        return kept

    def get(self, part: str, clients: Tensor, make: Callable[[], Crafted]) -> Crafted:
        """The examples of some clients, in their order."""
        key = (part, tuple(clients.tolist()))
        if key in self.made:
            return self.made[key]
        crafted = make()
        size = sum(getattr(crafted, one.name).nbytes for one in fields(crafted))
        if size <= self.left:
            self.made[key], self.left = crafted, self.left - size
        return crafted


_STORES: WeakKeyDictionary[LocalTraining, CraftedStore] = WeakKeyDictionary()
