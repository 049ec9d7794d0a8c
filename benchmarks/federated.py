"""How fast a federation trains: ours against Flower's simulation engine, Apple's pfl and a loop written by hand.

Every system trains the same clients from the same initial weights: logistic regression, an 80k MLP, a CNN of 20,522
parameters (w1) and the 1.6M CNN of pfl's own benchmark (w2) by FedAvg, and w1 by Ditto (ours and the loop). One local
epoch, batches of 10 in the order of the data, learning rate 0.05, all clients equally weighted and all in every round.
``gru`` and ``transformer`` are texts of 40 words: an embedding of 64 and a GRU of 128, and two transformer layers of
width 64. ``w1@1000`` is w1 with 1,000 clients. ``many`` is ours alone: 100,000 small clients, 1,000 of them in each of
50 rounds.

Every run is a command of its own with one torch thread per process: two Ray actors for Flower, one process or two by
torchrun for pfl, one or two for the loop. Flower and pfl get environments of their own, made when missing. In every
pass the systems take turns, in rotating order, and ratios are taken within a pass; reported are the median over passes
and the range.

- clients/s: clients per round divided by the median time between the ends of two rounds, so the first doesn't count.
- first round: from the start of the command to the end of its first round.
- memory: the peak of the sum over all processes of the proportional set size. The sum of resident sizes is given too.
- CPU: of all processes, from the end of the first round to that of the last, per client.
- Same results: three rounds of 20 clients in double precision, apart from the timed runs; the largest difference of a
  weight from the loop's, divided by the largest weight, must be at most 1e-6, and that of every other system 1e-5 (pfl
  keeps some sums in single precision), or they compute something else. The digest of the timed runs, the sum of
  absolute final weights, ours against the loop's, is given without a target: in single precision a unit near zero fires
  or not by a rounding error, and that grows over the rounds.

Run: ``python benchmarks/federated.py``. Writes results/benchmarks/federated.json, and every run with its commit to
results/benchmarks/federated/runs.json. ``--workloads w2 many`` measures these and keeps the stored runs of the others;
``--add`` keeps theirs too and adds passes. Ditto is compared with the loop on w1, so measure these two together.
``--quick`` is one pass of three rounds that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from federated.environments import make_environment
from federated.report import Compared, Row, compare, largest_difference, runs_table, speeds, targets_table
from federated.stored import Stored
from federated.watch import Usage, run_watched
from federated.workload import Job, find_workload

from holdfast.papers.engine.benchmarks import write_benchmark
from holdfast.provenance import git_commit

HERE = Path(__file__).parent / "federated"
CACHE = Path("~/.cache/holdfast/benchmarks")
WORKLOADS = ("logistic", "mlp", "w1", "w2", "ditto", "gru", "transformer")
WORKLOADS += ("logistic@10", "logistic@1000", "w1@10", "w1@1000", "many")
QUICK = ("logistic", "w1", "ditto")
CHECKED_CLIENTS, CHECKED_ROUNDS = 20, 3
PACKAGES = ("torch", "numpy", "flwr", "ray", "pfl")


@dataclass(frozen=True)
class System:
    """How a system is run: its script, in which environment (ours where it is empty), in how many processes."""

    script: str
    environment: str
    processes: int

    def python(self, environments: Path) -> Path:
        """The interpreter."""
        return environments / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    def command(self, environments: Path) -> list[str]:
        """The command, without its job."""
        launch = []
        if self.environment == "pfl" and self.processes > 1:
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.processes}"]
        return [str(self.python(environments)), *launch, str(HERE / self.script)]


SYSTEMS = {
    "ours": System("ours.py", "", 2),
    "flower": System("flower_run.py", "flower", 2),
    "pfl": System("pfl_run.py", "pfl", 1),
    "pfl x2": System("pfl_run.py", "pfl", 2),
    "loop": System("loop.py", "", 1),
    "loop x2": System("loop.py", "", 2),
}
DITTO = ("ours", "loop", "loop x2")
SWEEP = ("ours", "flower", "pfl x2", "loop x2")


def systems_for(workload: str) -> tuple[str, ...]:
    """Who runs a workload."""
    if workload == "many":
        return ("ours",)
    if workload == "ditto":
        return DITTO
    return SWEEP if "@" in workload else tuple(SYSTEMS)


@dataclass
class Runner:
    """Runs jobs, and keeps what they print and write in a scratch folder.

    Attributes:
        environments: folder of the peers' environments.
        scratch: folder for what runs write.
        failed: the workloads of which a run failed, and whose.
    """

    environments: Path
    scratch: Path
    failed: dict[str, str]

    def run(
        self, system: str, workload: str, rounds: int, name: str, dtype: str = "float32"
    ) -> tuple[Usage, Path] | None:
        """Run one job; None if it failed."""
        out = self.scratch / f"{name}-{workload}-{system.replace(' ', '-')}"
        out.mkdir()
        job = Job(workload, rounds, SYSTEMS[system].processes, str(out), dtype)
        environment = {
            **os.environ,
            **job.environment(),
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
            **dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"), "0"),
            "FLWR_HOME": str(out),
            "PYTHONPATH": str(HERE),
        }
        usage = run_watched(SYSTEMS[system].command(self.environments), environment, str(out), out / "log.txt")
        if usage.code == 0 and (out / "record.json").exists():
            return usage, out
        self.failed[workload.removesuffix(f"@{CHECKED_CLIENTS}")] = system
        print(f"{system} on {workload} failed with code {usage.code}:\n{usage.output}", file=sys.stderr)
        return None

    def measure(self, system: str, workload: str, rounds: int, turn: int) -> Row | None:
        """One timed run."""
        load = os.getloadavg()[0]
        found = self.run(system, workload, rounds, f"pass{turn}")
        if found is None:
            return None
        usage, out = found
        record = json.loads((out / "record.json").read_text())
        ends = record["ends"]
        clients = find_workload(workload).trained
        speed, best = speeds(ends, clients)
        cpu = 1000 * usage.cpu_between(ends[0], ends[-1]) / (clients * (len(ends) - 1))
        digest = sum(float(np.abs(np.load(file).astype(np.float64)).sum()) for file in sorted(out.glob("*.npy")))
        row = Row(
            workload,
            system,
            turn,
            speed,
            best,
            ends[0] - usage.started,
            usage.pss,
            usage.rss,
            cpu,
            load,
            digest,
            record["note"],
            git_commit() or "",
        )
        told = f"{speed:.1f} clients/s, first round {row.first:.1f} s, load {load:.1f} {row.note}"
        print(f"pass {turn}, {workload}, {system}: {told}", flush=True)
        return row

    def agreement(self, systems: Sequence[str], workload: str) -> dict[str, float]:
        """For each system the largest difference of a weight from the loop's, in double precision."""
        written: dict[str, Path] = {}
        for system in systems:
            found = self.run(system, f"{workload}@{CHECKED_CLIENTS}", CHECKED_ROUNDS, "check", "float64")
            if found is not None:
                written[system] = found[1]
        if "loop" not in written:
            return {}
        return {system: difference(out, written["loop"]) for system, out in written.items() if system != "loop"}


def difference(out: Path, loop: Path) -> float:
    """The largest difference of a weight from the loop's; infinite where initial weights weren't the same."""
    starts = [json.loads((folder / "record.json").read_text())["initial"] for folder in (out, loop)]
    if starts[0] != starts[1]:
        return float("inf")
    return max(largest_difference(np.load(out / file.name), np.load(file)) for file in loop.glob("*.npy"))


def machine(environments: Path) -> dict[str, object]:
    """What it was measured on, and the versions in every environment."""
    script = "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n"
    script += (
        "    try: found[name] = m.version(name)\n    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    versions = {}
    for name in ("ours", "flower", "pfl"):
        command = [str(SYSTEMS[name].python(environments)), "-c", script, *PACKAGES]
        versions[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    processor = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    return {
        "processor": processor[0] if processor else platform.processor(),
        "cores": os.cpu_count(),
        "memory": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", help=f"of {' '.join(WORKLOADS)}, or NAME@CLIENTS; all by default")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="instead of each workload's own number")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--add", action="store_true", help="passes behind the stored ones of the same workloads")
    parser.add_argument("--quick", action="store_true", help="one pass of three rounds; nothing is written")
    parser.add_argument("--envs", type=Path, default=CACHE, help="folder of the peers' environments")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    workloads = chosen.workloads or (QUICK if chosen.quick else WORKLOADS)
    rounds, passes = (3, 1) if chosen.quick else (chosen.rounds, chosen.passes)
    environments = chosen.envs.expanduser().resolve()
    for peer in {SYSTEMS[system].environment for system in chosen.systems} - {""}:
        make_environment(peer, environments)
    file = chosen.results / "benchmarks" / "federated" / "runs.json"
    here, stored = machine(environments), Stored.read(file)
    stored = stored if chosen.add else stored.without(workloads)
    if others := [workload for workload in workloads if stored.machines.get(workload, here) != here]:
        sys.exit(
            f"measured on another machine, so passes can't be added: {' '.join(others)}; measure them without --add"
        )
    with tempfile.TemporaryDirectory(prefix="holdfast-federated-") as scratch:
        runner = Runner(environments, Path(scratch), {})
        who = {workload: [name for name in systems_for(workload) if name in chosen.systems] for workload in workloads}
        known = (*stored.agreement, "many")  # with --add it is known already
        checked = [workload for workload in workloads if "@" not in workload and workload not in known]
        agreement = {workload: found for workload in checked if (found := runner.agreement(who[workload], workload))}
        rows = []
        for turn in range(passes):
            for workload in workloads:
                names = who[workload]
                first = turn % max(1, len(names))
                for system in [*names[first:], *names[:first]]:
                    number = rounds or find_workload(workload).rounds
                    if (row := runner.measure(system, workload, number, turn)) is not None:
                        rows.append(row)
    if chosen.quick:
        show(Stored(tuple(rows), agreement))
    else:
        measured = Stored(tuple(rows), agreement).without(runner.failed)
        kept = stored if chosen.add else Stored.read(file).without(row.workload for row in measured.rows)
        stored = kept.with_more(measured, here)
        stored.write(file)
        ratios = [one.ratio for one in show(stored) if one.target is not None]
        print(write_benchmark("federated", ratios, chosen.results))
    if runner.failed:
        told = ", ".join(f"{workload} ({system})" for workload, system in runner.failed.items())
        sys.exit(f"failed, so nothing was written of: {told}")


def show(stored: Stored) -> list[Compared]:
    """Print the tables; what was compared."""
    compared = compare(stored.rows, stored.agreement)
    print(f"\n{runs_table(stored.rows)}\n\n{targets_table(compared)}\n")
    return compared


if __name__ == "__main__":
    main()
