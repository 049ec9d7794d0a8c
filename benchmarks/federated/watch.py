"""Running a command and watching all of its processes: CPU time, memory, until the last one is gone.

Ray puts its daemons outside the process tree, so a process belongs to the run if it carries the run's variable in its
environment, or if its parent belongs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

INTERVAL = 0.1
PATIENCE = 15.0
EMPTY_SCANS = 2
TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")
Process = tuple[int, int]


@dataclass
class Usage:
    """What a run took.

    Attributes:
        started: when it was started, seconds since the epoch.
        code: the exit code of the command.
        output: the end of what it printed.
        times: when CPU time was read.
        cpu: CPU seconds of all processes until then, those that ended included.
        pss: peak of the summed proportional set sizes, in bytes: pages shared by n processes count 1/n in each.
        rss: peak of the summed resident sizes, in bytes: shared pages count in every process.
    """

    started: float
    code: int = -1
    output: str = ""
    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    pss: int = 0
    rss: int = 0

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds of all processes between two times, by linear interpolation between readings."""
        before, after = np.interp([start, end], self.times, self.cpu)
        return float(after - before)


class ProcessFamily:
    """The processes of a run, found in /proc."""

    def __init__(self, mark: str) -> None:
        self.mark = mark.encode()
        self.known: dict[Process, bool] = {}
        self.cpu: dict[Process, float] = {}

    def scan(self) -> dict[Process, int]:
        """Resident bytes of each process that lives; CPU times are noted on the way."""
        rows = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (row := read_stat(int(entry.name))) is not None:
                rows[row[0]] = row[1:]
        members = {pid for (pid, _), belongs in self.known.items() if belongs}
        resident = {}
        for process, (parent, cpu, rss) in sorted(rows.items()):
            if process not in self.known:
                self.known[process] = parent in members or self.mark in read_bytes(f"/proc/{process[0]}/environ")
            if self.known[process]:
                members.add(process[0])
                self.cpu[process] = cpu
                resident[process] = rss
        self.known = {process: belongs for process, belongs in self.known.items() if process in rows}
        return resident


def read_bytes(file: str) -> bytes:
    """What a file of /proc says, or nothing if the process is gone."""
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""


def read_stat(pid: int) -> tuple[Process, int, float, int] | None:
    """A process (its id and when it started), its parent, its CPU seconds and resident bytes; None if it is gone."""
    text = read_bytes(f"/proc/{pid}/stat").decode(errors="replace")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":
        return None
    cpu = TICK * (int(fields[11]) + int(fields[12]))
    return (pid, int(fields[19])), int(fields[1]), cpu, PAGE * int(fields[21])


def read_pss(pid: int) -> int:
    """Proportional set size in bytes, 0 if the process is gone."""
    for line in read_bytes(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def run_watched(command: Sequence[str], environment: Mapping[str, str], mark: str, log: Path) -> Usage:
    """Run a command to its end and that of everything it started.

    Reading proportional sizes is slow, so it is done only when resident sizes have grown by 1 %. A process that
    starts another and ends while processes are listed hides both from that scan, so the run is over only when two scans
    in a row, begun after the command's end, find nothing.

    Args:
        command: what to run.
        environment: of the command.
        mark: text in the environment that only this run's processes have.
        log: file for what it prints.
    """
    family = ProcessFamily(mark)
    with log.open("wb") as stream:
        usage = Usage(time.time())
        process = subprocess.Popen(list(command), env=dict(environment), stdout=stream, stderr=subprocess.STDOUT)  # noqa: S603
        ended, empty = None, 0
        while empty < EMPTY_SCANS:
            over = process.poll() is not None
            resident = family.scan()
            usage.times.append(time.time())
            usage.cpu.append(sum(family.cpu.values()))
            if sum(resident.values()) > 1.01 * usage.rss:
                usage.rss = sum(resident.values())
                usage.pss = max(usage.pss, sum(read_pss(pid) for pid, _ in resident))
            empty = empty + 1 if over and not resident else 0
            if over:
                ended = ended or time.time()
                if time.time() > ended + PATIENCE:
                    end_processes(resident)
            time.sleep(INTERVAL)
    usage.code = process.returncode
    usage.output = log.read_text(errors="replace")[-3000:]
    return usage


def end_processes(processes: Mapping[Process, int]) -> None:
    """Kill what a command left behind."""
    for pid, _ in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
