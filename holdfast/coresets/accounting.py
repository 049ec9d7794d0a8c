"""What choosing costs and what it decided: examples passed through, seconds by activity, a record of every choice.

Records grow with the training, so they are no part of a checkpoint: a run keeps them in its metrics file, as it keeps
its epochs, and gives them back to a training that goes on. Loops without a run have those since the loop began.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.files import write_atomically
from holdfast.training.policy import Record

_KINDS = ("selections", "checks")


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

    def __post_init__(self) -> None:
        self._told = dict.fromkeys(_KINDS, 0)

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
        """Plain values, for files."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Accounts:
        """What `to_json` gave."""
        return cls(**values)

    # ------------------------------------------------------------------------------------- in a run that goes on

    def new_records(self) -> list[Record]:
        """The selections and checks since this was last asked."""
        fresh = {kind: getattr(self, kind)[told:] for kind, told in self._told.items()}
        for kind, records in fresh.items():
            self._told[kind] += len(records)
        return [fresh] if any(fresh.values()) else []

    def recall(self, records: list[Record]) -> None:
        """Take back the last of what `new_records` gave, as much as had been told when the checkpoint was made."""
        for kind, told in self._told.items():
            known = [one for record in records for one in record.get(kind, [])]
            before = known[len(known) - min(told, len(known)) :]
            setattr(self, kind, before + getattr(self, kind))
            self._told[kind] = len(before)

    def state_dict(self) -> dict[str, Any]:
        """Sums, and how many records were told."""
        sums = {"forward": self.forward, "backward": self.backward, "seconds": dict(self.seconds)}
        return {**sums, "told": dict(self._told)}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Accounts:
        """What `state_dict` was taken of; older checkpoints hold the records themselves, which are still to be told."""
        if "told" not in state:
            return cls.from_json(state)
        accounts = cls(**{name: state[name] for name in ("forward", "backward", "seconds")})
        accounts._told = {kind: int(state["told"][kind]) for kind in _KINDS}
        return accounts
