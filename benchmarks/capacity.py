"""What a federation on Flower costs by its number of clients: bytes, CPU, memory and disk, measured.

``holdfast federate --engine flower`` runs as it is: a SuperLink and SuperNodes on loopback, one message per node and
round for all of its clients in the round. It runs in a network namespace of its own, so the bytes on loopback are the
federation's and nobody else's, HTTP and TCP included. Clients are those of ``synthetic-many`` (10 examples of 20
numbers), each with a personal model by Ditto; clients, clients per round, nodes and parameters are varied.

Cost of a round is what happens between the first and the last checkpoint, divided by the rounds between.
`holdfast.papers.engine.capacity` fits a model to it.

Run, as root: ``python benchmarks/capacity.py``. Writes results/benchmarks/capacity/runs.json, from which
``docs/generate.py`` makes docs/results/capacity.md. Each run is stored when it ends and runs that are stored are not
measured again, so a plan can be measured in pieces (``--only 0 1``); ``--again`` does. ``--note`` says in it what else
the machine was doing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.papers.engine.capacity import Measured, read_runs
from holdfast.papers.engine.jsonfile import write_json
from holdfast.provenance import git_commit

ROUNDS, INTERVAL = 4, 0.05
#: Clients, clients per round, nodes, hidden units (0: softmax regression).
PLAN = (
    (100, 20, 2, 0),
    (100, 100, 2, 256),
    (1_000, 1_000, 2, 0),
    (100_000, 100, 2, 0),
    (10_000, 1_000, 2, 256),
    (10_000, 1_000, 8, 0),
    (100_000, 1_000, 2, 0),
    (1_000, 100, 8, 0),
    (10_000, 100, 2, 0),
    (100_000, 1_000, 2, 256),
)
TICK = 1 / os.sysconf("SC_CLK_TCK")
PARTS = ("server", "superlink", "nodes")


@dataclass(frozen=True)
class Reading:
    """What was seen at one moment.

    Attributes:
        cpu: seconds so far by part, those of processes that ended included.
        memory: proportional set sizes by part, in bytes.
        wire: bytes that loopback has carried.
        at: when, in seconds.
    """

    cpu: dict[str, float]
    memory: dict[str, int]
    wire: int
    at: float


def command(clients: int, cohort: int, nodes: int, hidden: int, out: Path) -> list[str]:
    """The federation."""
    model = ["--model", "mlp", "--model-args", f"hidden=[{hidden}]"] if hidden else ["--model", "softmax"]
    words = ["federate", "--engine", "flower", "--nodes", nodes, "--data", "synthetic-many", *model]
    words += ["--synthetic-many.clients", clients, "--synthetic-many.examples", 10, "--personalize", "ditto"]
    words += ["--ditto.lambda", 1, "--rounds", ROUNDS, "--cohort", cohort, "--evaluate-every", 0, "--out", out]
    run = "exec " + shlex.join([sys.executable, "-m", "holdfast.cli.main", *map(str, words)])
    return ["unshare", "-n", "sh", "-c", f"ip link set lo up && {run}"]


def processes(server: int) -> Iterator[tuple[int, int, float, int]]:
    """Process, process group, CPU seconds with its ended children's, start time, of all in the server's namespace."""
    namespace = Path(f"/proc/{server}/ns/net").readlink()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns" / "net").readlink() == namespace:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(words[2]), TICK * sum(map(int, words[11:15])), int(words[19])
        except OSError:  # it is gone
            continue


def read(server: int, *, memory: bool) -> Reading:
    """Look at all processes of the federation."""
    found = list(processes(server))
    own = os.getpgid(server)
    began = {}
    for _, group, _, start in found:
        began[group] = min(start, began.get(group, start))
    # After the server come the launcher, which does nothing once it has started the others, and the SuperLink.
    others = sorted((group for group in began if group != own), key=lambda group: (began[group], group))
    part_of = {own: "server"} | dict.fromkeys(others[:1], "launcher") | dict.fromkeys(others[1:2], "superlink")
    cpu, sizes = dict.fromkeys((*PARTS, "launcher"), 0.0), dict.fromkeys((*PARTS, "launcher"), 0)
    for process, group, seconds, _ in found:
        part = part_of.get(group, "nodes")
        cpu[part] += seconds
        sizes[part] += pss(process) if memory else 0
    lines = Path(f"/proc/{server}/net/dev").read_text().splitlines()
    wire = next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))
    return Reading(cpu, sizes, wire, time.monotonic())


def pss(process: int) -> int:
    """Proportional set size in bytes: pages that n processes share count 1/n in each."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measure(clients: int, cohort: int, nodes: int, hidden: int, out: Path) -> Measured:
    """Run a federation and watch it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    with (out.parent / "log.txt").open("wb") as log:
        words = command(clients, cohort, nodes, hidden, out)
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)  # noqa: S603
        ends, largest, last = watch(process, out / "checkpoints" / "last.safetensors")
    if process.returncode or len(ends) < ROUNDS:
        sys.exit(
            f"the federation ended with {process.returncode} after {len(ends)} rounds:\n{Path(log.name).read_text()}"
        )
    first, final = ends[0], ends[ROUNDS - 1]
    between = ROUNDS - 1
    states = sorted(out.rglob("after-*.safetensors"))
    return Measured(
        clients=clients,
        cohort=cohort,
        nodes=nodes,
        parameters=parameters_of(hidden),
        **{f"{part}_cpu": (final.cpu[part] - first.cpu[part]) / between for part in PARTS},
        wire=(final.wire - first.wire) / between,
        seconds=(final.at - first.at) / between,
        **{f"{part}_memory": largest[part] for part in PARTS},
        disk=sum(state.stat().st_blocks * 512 for state in states),
        kept=len({state.parent for state in states}),
        evaluation_cpu=sum(last.cpu[part] - final.cpu[part] for part in PARTS),
    )


def watch(process: subprocess.Popen[bytes], checkpoint: Path) -> tuple[list[Reading], dict[str, int], Reading]:
    """What was seen whenever a round was saved, the largest sizes, and what was seen last."""
    ends: list[Reading] = []
    largest, seen, last, looks = dict.fromkeys(PARTS, 0), 0, None, 0
    while process.poll() is None:
        time.sleep(INTERVAL)
        looks += 1
        try:
            reading = read(process.pid, memory=looks % 10 == 0)
        except OSError:
            continue
        last = reading if sum(reading.cpu.values()) >= (sum(last.cpu.values()) if last else 0) else last
        for part in PARTS:
            largest[part] = max(largest[part], reading.memory[part])
        saved = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        if saved != seen and checkpoint.exists():
            seen = saved
            ends.append(reading)
    assert last is not None
    return ends, largest, last


def parameters_of(hidden: int) -> int:
    """Of the network: 20 numbers to 10 classes, through this many hidden units if there are any."""
    return 31 * hidden + 10 if hidden else 210


def key(run: Measured) -> tuple[float, ...]:
    """What a run is known by."""
    return run.clients, run.cohort, run.nodes, run.parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    parser.add_argument("--only", type=int, nargs="+", default=range(len(PLAN)), help="which runs to measure, from 0")
    parser.add_argument("--again", action="store_true", help="measure runs that are stored, too")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    file = chosen.results / "benchmarks" / "capacity" / "runs.json"
    kept = {key(run): run for run in (read_runs(file)[0] if file.exists() else [])}
    for place in chosen.only:
        *who, hidden = PLAN[place]
        if (*who, parameters_of(hidden)) in kept and not chosen.again:
            print(f"stored: {PLAN[place]}", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-capacity-") as scratch:
            started = time.monotonic()
            run = measure(*PLAN[place], Path(scratch) / "run")
        print(f"{time.monotonic() - started:.0f} s: {run}", flush=True)
        kept[key(run)] = run
        runs = [asdict(kept[each]) for each in sorted(kept)]
        write_json(file, {"commit": git_commit(), "note": chosen.note, "runs": runs})


if __name__ == "__main__":
    main()
