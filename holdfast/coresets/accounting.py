"""What choosing costs and what it decided: examples passed through, seconds by activity, a record of every choice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.files import write_atomically


@dataclass
class Accounts:
    """Kept by a method that chooses.

    Attributes:
        selections: a record per choice: the step, and what the method says about it.
        checks: a record of each check whether the choice still holds.
        forward: examples gone through the model for choosing and checking, beyond training.
        backward: examples whose gradients were computed beyond training; each pass counts.
        seconds: by activity.
    """

    selections: list[dict[str, float]] = field(default_factory=list)
    checks: list[dict[str, float]] = field(default_factory=list)
    forward: int = 0
    backward: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - started

    def save(self, folder: Path, name: str) -> None:
        """Write them as ``NAME.json`` into a run's directory."""
        write_atomically(folder / f"{name}.json", json.dumps(self.to_json()).encode())

    @classmethod
    def load(cls, folder: Path, name: str) -> Accounts | None:
        """What `save` wrote, or None where it wrote nothing."""
        file = folder / f"{name}.json"
        content = json.loads(file.read_text()) if file.exists() else None
        return cls.from_json(content) if isinstance(content, dict) and "selections" in content else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for files and checkpoints."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Accounts:
        """What `to_json` gave."""
        return cls(**values)
