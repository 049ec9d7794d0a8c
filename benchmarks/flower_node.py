"""What a message costs a real node: `holdfast federation join` beside Flower's own SuperNode.

One server (SuperLink, nginx, TLS, node authentication) and one node at a time, on loopback, with the same key, the same
data and the same app; the server asks it to train its five clients, again and again. Flower's SuperNode starts a Python
for every message, ours forks one that has imported everything. Cost is CPU-seconds of all processes of the node, those
that have ended included, from the end of the first message to the end of the last, by the number of messages.

The two take turns, and the ratio is taken within a pass; reported are the median over passes and the sample standard
deviation. Idle processes cost both of them something too, since they look for messages every three seconds.

Run: ``python benchmarks/flower_node.py``. Writes results/benchmarks/flower-node.json. ``--note`` says what else the
machine was doing, and is printed only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from flwr.app import Message

from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.membership import admit, register
from holdfast.integrations.flower.operation.service import serving
from holdfast.integrations.flower.rehearsal.deployment import _free_port
from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
from holdfast.integrations.flower.rehearsal.project import CHARTER, app_files
from holdfast.integrations.flower.server.attendance import sightings
from holdfast.papers.engine.benchmarks import Ratio, write_benchmark

CLIENTS, TARGET = 5, 0.1
MESSAGES = {"holdfast": 10, "flower": 4}
_TICKS = os.sysconf("SC_CLK_TCK")


def prepare(folder: Path) -> FederationFolder:
    """A federation of one hospital with five wards, whose node has been admitted."""
    rng, lines = np.random.default_rng(0), ["ward,age,pulse,sepsis"]
    for row in range(500):
        age, pulse = rng.integers(20, 95), rng.normal(85, 15)
        lines.append(f"w{row % CLIENTS},{age},{pulse:.1f},{'yes' if age + pulse > 140 else 'no'}")
    (folder / "wards.csv").write_text("\n".join(lines) + "\n")
    words = ["--host", "127.0.0.1", "--listen", f"127.0.0.1:{_free_port()}", "--superlink", f"127.0.0.1:{_free_port()}"]
    words += ["--data", "wards.csv", "--label", "sepsis", "--client", "ward", "--model", "mlp", "--ditto.lambda", "1"]
    _holdfast(folder, "init", "ours", *words)
    federation = FederationFolder.open(folder / "ours")
    join = ["--invitation", "ours/invitation.json", "--server", federation.listen, "--data", "wards.csv"]
    _holdfast(folder, "join", *join, "--state", "state", "--check")
    admit(federation, "north", folder / "state" / "node.pub", CLIENTS, 1000)
    return federation


def _holdfast(folder: Path, *words: str) -> None:
    words = (sys.executable, "-m", "holdfast.cli.main", "federation", *words)
    subprocess.run(words, cwd=folder, check=True)  # noqa: S603


def node_words(system: str, federation: FederationFolder, folder: Path) -> list[str]:
    state = folder / "state"
    if system == "holdfast":
        words = [sys.executable, "-m", "holdfast.cli.main", "federation", "join", "--server", federation.listen]
        return [*words, "--invitation", "ours/invitation.json", "--data", "wards.csv", "--state", "state"]
    config = f'data="{state / "data"}" state="{state}"'
    words = [str(Path(sys.executable).parent / "flower-supernode"), "--superlink", federation.listen]
    words += ["--root-certificates", str(federation.keys / "ca.crt"), "--port", str(_free_port())]
    return [*words, "--auth-supernode-private-key", str(state / "node"), "--node-config", config]


@contextlib.contextmanager
def node(system: str, federation: FederationFolder, folder: Path) -> Iterator[int]:
    """A node of this system; the id of its first process."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **quiet, "PATH": path, "FLWR_HOME": str(folder / "flwr")}
    with (folder / f"{system}.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            node_words(system, federation, folder), cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process.pid
    finally:
        family = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """A process and all that come from it."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def cpu_seconds(root: int) -> float:
    """Of a process, all that come from it, and their children that have ended."""
    total = 0
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / _TICKS


def measure(system: str, federation: FederationFolder, folder: Path, name: str) -> float:
    """CPU-seconds of the node per message."""
    invitation = federation.invitation()
    size = sum(torch.Size(shape).numel() for _, shape, _ in invitation.charter.parameters)
    files = app_files(invitation.options, **{CHARTER: invitation.charter.to_json()})
    shutil.rmtree(folder / "state" / name, ignore_errors=True)
    ids = tuple(range(CLIENTS))
    orders = [Request("train", name, k, CLIENTS, ids, weights=torch.zeros(size)) for k in range(MESSAGES[system])]
    with grid_of_new_run(federation.access(), files) as grid, contextlib.ExitStack() as stack:
        # A node that was killed stays listed until a heartbeat fails or its successor signs it off.
        stale = set(sightings(grid))
        root = stack.enter_context(node(system, federation, folder))
        while not (fresh := set(sightings(grid)) - stale):
            time.sleep(0.5)
        (number,) = (seen.id for seen in fresh)
        _ask(grid, number, Request("census", name, total=CLIENTS, clients=ids))
        before = cpu_seconds(root)
        for order in orders:
            _ask(grid, number, order)
        return (cpu_seconds(root) - before) / len(orders)


def _ask(grid: object, number: int, request: Request) -> None:
    (reply,) = grid.send_and_receive([Message(request.pack(), number, "train")], timeout=180)  # type: ignore[attr-defined]
    if reply.has_error() or "refusal" in reply.content["holdfast"]:
        raise SystemExit(f"the node failed: {reply}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    shares = []
    with tempfile.TemporaryDirectory(prefix="holdfast-node-") as scratch:
        folder = Path(scratch)
        federation = prepare(folder)
        with serving(federation):
            register(federation.access(), federation.roster())
            for turn in range(chosen.passes):
                # Ours first: it signs a node off that was stopped, which Flower's own would wait a heartbeat for.
                costs = {name: measure(name, federation, folder, f"{turn:032x}") for name in MESSAGES}
                shares.append(costs["holdfast"] / costs["flower"])
                print(
                    f"pass {turn + 1}, CPU-seconds a message:",
                    {name: round(cost, 3) for name, cost in costs.items()},
                    flush=True,
                )
    ratio = Ratio.over("CPU of a message at a node", shares, TARGET, "Flower's own SuperNode, a Python per message")
    print(f"{ratio.name}: {ratio.value:.3g} ± {ratio.spread or 0:.2g}, target {TARGET}, met: {ratio.met} {chosen.note}")
    print(write_benchmark("flower-node", [ratio], chosen.results))


if __name__ == "__main__":
    main()
