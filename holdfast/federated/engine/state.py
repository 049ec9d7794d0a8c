"""All that the server remembers between rounds, and so all that a checkpoint needs of it."""

from __future__ import annotations

from collections.abc import Mapping
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
        early: the shared model after earlier rounds that some method starts from, shape (P,), by their number.
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
    early: dict[str, Tensor] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a checkpoint, without the history."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "history"}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> State:
        """The state of a checkpoint, which may hold more than that, as it was saved."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})

    def resumed(self, saved: Mapping[str, Any]) -> State:
        """The state of a checkpoint of the same federation as this one.

        Raises:
            ValueError: if an entry is of another kind, or of another federation.
        """
        for name in ("weights", "drawn", "joined"):
            _expect_like(saved[name], getattr(self, name), name)
        if saved["server"].keys() != self.server.keys():
            raise ValueError(f"the server remembers {', '.join(map(str, saved['server'])) or 'nothing'}")
        for name, tensor in self.server.items():
            _expect_like(saved["server"][name], tensor, name)
        for number, weights in saved.get("early", {}).items():
            _expect_like(weights, self.weights, f"the shared model after {number} rounds")
        for name in ("drawn", "joined"):
            if (saved[name] < 0).any():
                raise ValueError(f"{name} has a number below 0")
        for name in ("number", "dropped"):
            if type(saved[name]) is not int or saved[name] < 0:
                raise ValueError(f"{name} is {saved[name]!r:.60}, not a count")
        return State.of(saved)


def _expect_like(given: Any, expected: Tensor, name: str) -> None:
    """Refuse what is not a tensor of the expected shape and dtype: it would fail in the middle of a round."""
    if not isinstance(given, Tensor) or (given.shape, given.dtype) != (expected.shape, expected.dtype):
        got = f"{tuple(given.shape)} of {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{name} is {got}, expected {tuple(expected.shape)} of {expected.dtype}")
