"""Runs that were stored, workload by workload, so that a benchmark that takes hours can be measured in parts.

Ratios are taken within a pass, and every workload is measured against its peers in the same call, so parts may be of
different days. What must not be mixed is said where it is kept: the machine of each workload, the commit of each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.papers.engine.jsonfile import write_json

from .report import Row


@dataclass(frozen=True)
class Stored:
    """What was measured so far.

    Attributes:
        rows: the timed runs.
        agreement: for each workload and system the largest difference of a weight from the loop's.
        machines: for each workload what it was measured on.
    """

    rows: tuple[Row, ...] = ()
    agreement: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    machines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Stored:
        """What is in the file; nothing if there is none."""
        if not file.exists():
            return cls()
        found = json.loads(file.read_text())
        return cls(tuple(Row(**run) for run in found["runs"]), found["agreement"], found["machines"])

    def write(self, file: Path) -> None:
        """Write the file anew."""
        runs = [asdict(row) for row in self.rows]
        write_json(file, {"machines": self.machines, "agreement": self.agreement, "runs": runs})

    def without(self, workloads: Iterable[str]) -> Stored:
        """All but some workloads."""
        workloads = set(workloads)
        return Stored(
            tuple(row for row in self.rows if row.workload not in workloads),
            {name: found for name, found in self.agreement.items() if name not in workloads},
            {name: found for name, found in self.machines.items() if name not in workloads},
        )

    def passes(self, workload: str) -> int:
        """How many there are of a workload."""
        return max((row.turn + 1 for row in self.rows if row.workload == workload), default=0)

    def with_more(self, measured: Stored, machine: Mapping[str, Any]) -> Stored:
        """With runs that were measured on a machine; their passes come behind those of the same workload."""
        behind = tuple(replace(row, turn=row.turn + self.passes(row.workload)) for row in measured.rows)
        return Stored(
            (*self.rows, *behind),
            {**self.agreement, **measured.agreement},
            {**self.machines, **{row.workload: machine for row in measured.rows}},
        )
