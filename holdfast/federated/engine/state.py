"""All that the server remembers between rounds, and so all that a checkpoint needs of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor


@dataclass(eq=False)
class State:
    """All that the server remembers between rounds.

    Attributes:
        number: rounds done.
        weights: the shared model, shape (P,).
        server: what the objective remembers.
        drawn: batches that each client has drawn, int64 of shape (clients,).
        joined: rounds that each client took part in, int64 of shape (clients,).
        dropped: updates that were not finite.
        seconds: training time, of all processes that had a part in it.
        diverged_at: round whose update made the shared model non-finite; it stays as before from then on.
        history: summaries at the rounds that were evaluated; a checkpoint leaves them to the run's metrics, so that it
            does not grow with the rounds.
        faults: what kept clients of a real federation out of rounds, plain values.
    """

    weights: Tensor
    server: dict[str, Tensor]
    drawn: Tensor
    joined: Tensor
    number: int = 0
    dropped: int = 0
    seconds: float = 0.0
    diverged_at: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a checkpoint, without the history."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "history"}

    @classmethod
    def of(cls, saved: dict[str, Any]) -> State:
        """The state of a checkpoint, which may hold more than that."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})
