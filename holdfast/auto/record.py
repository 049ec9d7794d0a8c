"""What `choose` tried and chose, as a run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Try:
    """One method, tried for a few epochs.

    Attributes:
        method: its name.
        score: the accuracy of its worst group of the validation set, or of its worst class where no groups are known.
        accuracy: on the validation set.
        mean: of the accuracies of its classes.
        gain: of the score over plain training.
        low: the lower end of the gain's interval.
        health: ok, doubtful or failed, see `holdfast.training.health`.
        seconds: processor seconds that it took.
        refused: why it could not be tried, in a sentence; its numbers are then 0.
    """

    method: str
    score: float = 0.0
    accuracy: float = 0.0
    mean: float = 0.0
    gain: float = 0.0
    low: float = 0.0
    health: str = "ok"
    seconds: float = 0.0
    refused: str = ""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why.

    Attributes:
        method: the chosen method.
        knowledge: what was known of the groups, see `holdfast.auto.knowledge`.
        why: the reason, in sentences.
        tries: every method that was tried, in order.
        epochs: how many epochs each was trained, with those that it adds itself.
        seconds: processor seconds of all tries.
    """

    method: str
    knowledge: str
    why: str
    tries: tuple[Try, ...]
    epochs: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, as ``results.json`` has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Choice:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: if it is anything else.
        """
        tries = tuple(
            Try(
                method=str(one["method"]),
                health=str(one["health"]),
                refused=str(one["refused"]),
                mean=float(one.get("mean", one["accuracy"])),  # which older runs lack
                **{name: float(one[name]) for name in ("score", "accuracy", "gain", "low", "seconds")},
            )
            for one in stored["tries"]
        )
        return cls(
            method=str(stored["method"]),
            knowledge=str(stored["knowledge"]),
            why=str(stored["why"]),
            tries=tries,
            epochs=int(stored["epochs"]),
            seconds=float(stored["seconds"]),
        )
