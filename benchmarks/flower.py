"""What a round on Flower's deployment costs: our engine and our strategy beside Flower's own FedAvg.

A SuperLink and SuperNodes on loopback, started by Flower's own commands, all systems with the same network (the CNN of
20,522 parameters), the same clients and the same local epoch, from the same initial weights. Cost is CPU-seconds of all
processes of the deployment from the end of the first round to the end of the last, because the processes of a
deployment share the cores with each other and with whatever else runs.

- ``fedavg``: Flower's own FedAvg, one client per node.
- ``strategy``: the same ClientApp under `RobustStrategy`.
- ``engine``: the app of ``holdfast federate --engine flower``, one client per node.
- ``shards``: the same with 50 clients per node, one message for all of them.

The systems take turns, in rotating order, and ratios are taken within a pass; reported are the median over passes and
the sample standard deviation. Final weights must agree with FedAvg's.

Run: ``python benchmarks/flower.py``. Writes results/benchmarks/flower.json and, with every run of every pass,
results/benchmarks/flower/runs.json. ``--note`` says in the latter what else the machine was doing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent / "federated"
sys.path.insert(0, str(HERE))

from federated.flower_costs import Row, ratios  # noqa: E402
from federated.flower_session import Session  # noqa: E402
from federated.ours import make_clients  # noqa: E402
from federated.watch import run_watched  # noqa: E402
from federated.workload import RATE, Job, Workload, find_workload  # noqa: E402

from holdfast.cli.commands.federation.blueprint import blueprint_of  # noqa: E402
from holdfast.cli.commands.federation.federate import charter_of  # noqa: E402
from holdfast.cli.commands.federation.options import parse  # noqa: E402
from holdfast.data.clients.clients import Clients  # noqa: E402
from holdfast.integrations.flower.rehearsal.project import CHARTER, RUN, app_files, write_app  # noqa: E402
from holdfast.models import build  # noqa: E402
from holdfast.papers.engine.benchmarks import write_benchmark  # noqa: E402
from holdfast.papers.engine.jsonfile import write_json  # noqa: E402
from holdfast.training.state import load_state  # noqa: E402

SYSTEMS = ("fedavg", "strategy", "engine", "shards")
SHARD = 50
CHECKPOINT = Path("run", "checkpoints", "last.safetensors")
_PYPROJECT = """[project]
name = "holdfast-benchmark"
version = "1.0.0"
description = "FedAvg, as a benchmark."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "holdfast"

[tool.flwr.app.components]
serverapp = "{module}:server_app"
clientapp = "flower_app:client_app"

[tool.flwr.app.config]
"""


def flower_app(module: str, folder: Path) -> None:
    """The Flower app in `module`, with the modules it imports."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(_PYPROJECT.format(module=module))
    for name in {module, "flower_app", "workload"}:
        shutil.copy(HERE / f"{name}.py", folder)


def holdfast_app(folder: Path, workload: Workload, everybody: Clients, *, rounds: int, nodes: int) -> None:
    """The app that ``holdfast federate --app`` writes, for the workload's clients."""
    weights = folder.with_name("start.safetensors")
    model = build("cnn-small", workload.shape, 10, seed=0)
    values = [value.numpy() for value in workload.new_model().state_dict().values()]
    save_file(dict(zip(model.state_dict(), values, strict=True)), weights)
    options = {
        "engine": "flower",
        "nodes": nodes,
        "app": folder,
        "data": "nodes",
        "model": "cnn-small",
        "weights": weights,
        "objective": "fedavg",
        "aggregate": "mean",
        "personalize": "none",
        "rounds": rounds,
        "cohort": workload.clients,
        "batch-size": workload.batch,
        "local-epochs": 1,
        "learning-rate": RATE,
        "sampling": "uniform",
        "evaluate-every": 0,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    chosen = parse([*words, "--no-shuffle", "--unlisted"])
    charter = charter_of(chosen, everybody, blueprint_of(chosen).model(everybody))
    write_app(folder, app_files(chosen.config(), **{RUN: "", CHARTER: charter.to_json()}))


def node_data(everybody: Clients, nodes: int, folder: Path) -> list[dict[str, str | int]]:
    """The folders of the nodes' clients, dealt out evenly, and what nodes are told of them."""
    told: list[dict[str, str | int]] = []
    each = len(everybody) // nodes
    for node in range(nodes):
        ids = range(node * each, (node + 1) * each)
        parts = {}
        for name, part in everybody.parts.items():
            rows = slice(int(part.offsets[ids.start]), int(part.offsets[ids.stop]))
            offsets = part.offsets[ids.start : ids.stop + 1] - part.offsets[ids.start]
            parts[name] = type(part)(part.inputs[rows], part.labels[rows], offsets)
        place = folder / f"data-{node}"
        Clients(**parts, classes=everybody.classes).save(place)
        state = folder / f"state-{node}"
        state.mkdir()
        told.append({"data": str(place), "clients": f"{ids.start}-{ids.stop - 1}", "state": str(state)})
    return told


def measure(system: str, turn: int, nodes: int, rounds: int, scratch: Path) -> tuple[Row, np.ndarray]:
    """One run: what a round costs, and the final weights."""
    out = scratch / f"{turn}-{system}"
    out.mkdir()
    name = f"w1@{nodes * SHARD if system == 'shards' else nodes}"
    workload = find_workload(name)
    app = out / "app"
    if system in ("engine", "shards"):
        run, everybody = out / "run", make_clients(workload)
        holdfast_app(app, workload, everybody, rounds=rounds, nodes=nodes)
        told = node_data(everybody, nodes, out)
        session = Session(str(app), str(out), told, {"run": str(run)}, str(out / CHECKPOINT))
    else:
        flower_app("flower_app" if system == "fedavg" else "flower_robust", app)
        session = Session(
            str(app), str(out), [{"partition-id": node, "num-partitions": nodes} for node in range(nodes)], {}
        )
    environment = {
        **os.environ,
        **Job(name, rounds, 1, str(out)).environment(),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        **dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"), "0"),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(out / "flwr"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    load = os.getloadavg()[0]
    command = [sys.executable, str(HERE / "flower_session.py"), str(session.write())]
    usage = run_watched(command, environment, str(out), out / "log.txt")
    record = out / "record.json"
    ends = json.loads(record.read_text())["ends"][:rounds] if record.exists() else []
    if len(ends) < rounds:
        logs = "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(out.glob("*.log"))
        )
        sys.exit(f"{system} ended after {len(ends)} of {rounds} rounds with code {usage.code}:\n{usage.output}\n{logs}")
    between = len(ends) - 1
    row = Row(
        system,
        turn,
        workload.clients,
        usage.cpu_between(ends[0], ends[-1]) / between,
        (ends[-1] - ends[0]) / between,
        ends[0] - usage.started,
        load,
    )
    told_row = (
        f"{row.cpu:.2f} CPU-s and {row.wall:.2f} s per round, {1000 * row.cpu / row.clients:.0f} CPU-ms per client"
    )
    print(f"pass {turn}, {system}: {told_row}, load {load:.1f}", flush=True)
    return row, final_weights(out)


def final_weights(out: Path) -> np.ndarray:
    """The shared model after the last round, shape (P,)."""
    if (out / "weights.npy").exists():
        return np.asarray(np.load(out / "weights.npy"))
    return load_state(out / CHECKPOINT)["weights"].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    parser.add_argument("--quick", action="store_true", help="one pass of three rounds; nothing is written")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    rounds, passes = (3, 1) if chosen.quick else (chosen.rounds, chosen.passes)
    rows, differences = [], []
    with tempfile.TemporaryDirectory(prefix="holdfast-flower-") as scratch:
        for turn in range(passes):
            first = turn % len(chosen.systems)
            weights = {}
            for system in [*chosen.systems[first:], *chosen.systems[:first]]:
                row, weights[system] = measure(system, turn, chosen.nodes, rounds, Path(scratch))
                rows.append(row)
            if "fedavg" in weights:
                others = [weights[name] for name in ("strategy", "engine") if name in weights]
                differences += [float(np.abs(other - weights["fedavg"]).max()) for other in others]
    compared = ratios(rows, differences)
    for ratio in compared:
        spread = "" if ratio.spread is None else f" ± {ratio.spread:.2g}"
        print(f"{ratio.name}: {ratio.value:.3g}{spread}, target {ratio.target:g}, {'met' if ratio.met else 'missed'}")
    if not chosen.quick:
        stored = {"note": chosen.note, "nodes": chosen.nodes, "rounds": rounds, "runs": [asdict(row) for row in rows]}
        write_json(chosen.results / "benchmarks" / "flower" / "runs.json", stored)
        print(write_benchmark("flower", compared, chosen.results))


if __name__ == "__main__":
    main()
