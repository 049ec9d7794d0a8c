"""What a run tells while it goes on: one small event, handed to anything that can be called with it.

The metrics file, the progress bar, TensorBoard and MLflow are listeners, and so may be a function of yours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal["start", "step", "plan", "epoch", "health", "record", "end"]


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: ``start`` and ``end`` of the run; ``step``, a few times a second; ``plan``, when what is trained on
            changed; ``epoch``, after each epoch's evaluation; ``health``, when an assumption of the method
            is found not to hold, or to hold again; ``record``, what a policy tells of its choices.
        epoch: the epoch it happened in, from 0.
        step: optimizer steps made so far.
        values: plain JSON values that depend on the kind, see `holdfast.training.fit`.
    """

    kind: EventKind
    epoch: int
    step: int
    values: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
