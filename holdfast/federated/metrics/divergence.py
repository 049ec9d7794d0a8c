"""Whether a shared model has diverged: its loss is no number, or far above that of the model it began with.

A server that averages what attackers send, or whose clients take too large steps, ends with finite weights that are
worth nothing. Accuracy at chance can be honest; a loss ten times that of guessing can't.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.data.clients.clients import Clients

#: A loss that is so many times as large as the one to begin with, and as that of guessing, has exploded.
FACTOR = 10.0


@dataclass(frozen=True)
class Divergence:
    """A shared model that is worth nothing.

    Attributes:
        loss: mean test loss of benign clients in the end.
        before: the loss it is compared with: that of the initial model, or of guessing where that is larger.
        since: the first evaluated round with such a loss.
        remedy: what to do.
    """

    loss: float
    before: float
    since: int
    remedy: str

    def sentence(self) -> str:
        """What happened, and what to do."""
        return (
            f"The shared model diverged: its loss is {self.loss:.3g} since round {self.since} or earlier, where it "
            f"began with {self.before:.3g}; {self.remedy}."
        )

    def record(self) -> dict[str, Any]:
        """As a run's record has it."""
        loss = self.loss if math.isfinite(self.loss) else None
        return {"loss": loss, "before": self.before, "since": self.since, "sentence": self.sentence()}


def divergence_of(
    loss: float,
    clients: Clients,
    initial_loss: Callable[[], float],
    history: Sequence[Mapping[str, Any]],
    remedy: str,
) -> Divergence | None:
    """What to say of a shared model, where it has diverged.

    Args:
        loss: mean test loss of benign clients.
        clients: says the loss of guessing.
        initial_loss: measures that of the initial model; called only where there is doubt.
        history: rounds that were evaluated, and under ``global`` the shared model's ``loss``, the last round included.
        remedy: what to do about it.
    """
    guessing = guessing_loss(clients)
    if math.isfinite(loss) and guessing is not None and loss <= FACTOR * guessing:
        return None
    before = max(value for value in (initial_loss(), guessing) if value is not None and math.isfinite(value))
    if loss <= FACTOR * before:
        return None
    since = next(entry["round"] for entry in history if not entry["global"]["loss"] <= FACTOR * before)
    return Divergence(loss, before, since, remedy)


def guessing_loss(clients: Clients) -> float | None:
    """The loss of a model that knows nothing, where the task says it."""
    if clients.task == "classes":
        return math.log(clients.classes)
    return 1.0 if clients.task == "margin" else None
