"""The section "Several machines" of the guide, carried out: a server and three nodes, each in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from holdfast.integrations.flower.rehearsal.deployment import _free_port
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "from-simulation-to-a-federation.md"
SECTION = "## Several machines"
WARDS = {"north": ("icu", "er"), "south": ("a", "b"), "west": ("w",)}
PATIENCE = 240


def shell_blocks() -> list[tuple[str, str]]:
    """Where each block of the section runs, as its first line says, and the block."""
    text = PAGE.read_text()
    first = text.count("\n", 0, text.index(SECTION))
    last = text.count("\n", 0, text.index("\n## ", text.index(SECTION) + 1))
    inside = [block for block in blocks(PAGE) if block.language == "sh" and first < block.line < last]
    return [(re.match(r"# on (.*)\n", block.body)[1], block.body) for block in inside]


def write_wards(file: Path, wards: tuple[str, ...], seed: int) -> None:
    """A hospital's own table, in the columns of the guide's example."""
    rng, lines = np.random.default_rng(seed), ["ward,age,pulse,sex,sepsis"]
    for ward in wards:
        for _ in range(40):
            age, pulse, sex = rng.integers(20, 95), rng.normal(85, 15), rng.choice(["f", "m"])
            sick = 0.05 * (age - 57) + 0.06 * (pulse - 85) + rng.normal(0, 0.5) > 0
            lines.append(f"{ward},{age},{pulse:.1f},{sex},{'yes' if sick else 'no'}")
    file.write_text("\n".join(lines) + "\n")


class Machines:
    """Runs the blocks in order; what is left running ends with `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.printed: dict[str, str] = {}
        for name in ("server", *WARDS):
            (folder / name).mkdir()
        for seed, (name, wards) in enumerate(WARDS.items()):
            write_wards(self.of(name) / "wards.csv", wards, seed)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ports = {"PORT": str(_free_port()), "INNER": str(_free_port())}
        self.environment = {**os.environ, **ports, "PATH": path, "HOST": "127.0.0.1", "ADDRESS": "127.0.0.1",
                            "OMP_NUM_THREADS": "1", "COLUMNS": "120"}  # fmt: skip

    def of(self, name: str) -> Path:
        return self.folder / name

    @property
    def federation(self) -> Path:
        return self.of("server") / "ours"

    def carry_out(self) -> None:
        """Do what the guide says, and send the files that it says to send."""
        for where, block in shell_blocks():
            if where.startswith("every machine"):
                continue  # its values come from the environment here
            if where.startswith("each node"):
                for name in WARDS:
                    shutil.copy(self.federation / "invitation.json", self.of(name))
                    self._start(name, block)
                self._send_keys()
            elif where.endswith("left running"):
                self._start("server", block)
                self.wait_for("server", "Nodes reach the federation")
            else:
                self._run(block)

    def _send_keys(self) -> None:
        for name in WARDS:
            self.wait_for(name, "not admitted yet")
            shutil.copy(self.of(name) / "state" / "node.pub", self.of("server") / f"{name}.pub")

    def _run(self, block: str) -> None:
        done = subprocess.run(
            ["bash", "-e", "-c", block], cwd=self.of("server"), env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        self.printed[re.findall(r"holdfast federation (\w+)", block)[-1]] = done.stdout

    def _start(self, name: str, block: str) -> None:
        with self.log(name).open("wb") as log:
            words, where = ["bash", "-e", "-c", block], self.of(name)
            process = subprocess.Popen(
                words, cwd=where, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)

    def log(self, name: str) -> Path:
        return self.of(name) / "printed.log"

    def wait_for(self, name: str, text: str) -> None:
        until = time.monotonic() + PATIENCE
        while text not in self.log(name).read_text():
            assert time.monotonic() < until, self.log(name).read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
        for process in self.started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
