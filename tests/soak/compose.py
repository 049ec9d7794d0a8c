"""The federation of the guide with its server in a container, as the compose file that `init` writes has it.

``python -m tests.soak.compose`` needs Docker with Compose (2.17 or later), and takes minutes: the image is built from
this checkout. ``HOLDFAST_BASE`` names the base image where none can be pulled. Three nodes of this machine join through
the published port; the commands of the server's side go through ``docker compose exec``. What is tried is what nobody
sees without an engine: that the image builds, that the server lives as a user without a name in a read-only root, and
that nothing but the proxy's port is reachable.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.training import Run
from tests.docs.pages import ROOT
from tests.integrations.flower.operation import guide
from tests.integrations.flower.operation.guide import WARDS, Machines

_COMPOSE = "docker compose -f ours/compose.yaml"
_COMMAND = re.compile(r"^holdfast federation (admit|run|status) ours", re.MULTILINE)
_KEY = re.compile(r" (\w+\.pub) ")


class Contained(Machines):
    """The guide's machines, of which the server's programs are in a container."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.environment |= {"ADDRESS": "0.0.0.0", "HOLDFAST_SOURCE": str(ROOT)}

    def _start(self, name: str, block: str) -> None:
        if name == "server":
            assert "holdfast federation serve ours" in block
            block = f"{_COMPOSE} up --build"
        super()._start(name, block)

    def _run(self, block: str) -> None:
        """What is on the server goes to the container, and keys lie in the one folder that it sees."""
        for key in self.of("server").glob("*.pub"):
            key.replace(self.federation / key.name)
        inside = _COMMAND.sub(rf"{_COMPOSE} exec -T federation holdfast federation \1 {self.federation}", block)
        super()._run(_KEY.sub(rf" {self.federation}/\1 ", inside))

    def in_container(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a command prints in the container."""
        command = [*_COMPOSE.split(), "exec", "-T", "federation", *words]
        return subprocess.run(
            command, cwd=self.of("server"), env=self.environment, capture_output=True, text=True, check=False
        )

    def stop(self) -> None:
        super().stop()
        subprocess.run([*_COMPOSE.split(), "down"], cwd=self.of("server"), env=self.environment, check=False)


def check(machines: Contained) -> None:
    """Assert what the guide and the file promise."""
    run = Run.open(machines.federation / "run")
    assert run.status == "finished", run.status
    assert run.results["clients"] == 5 and set(run.results["models"]) == {"global", "ditto-1"}
    assert "finished: 3 of 3 rounds" in machines.printed["status"]
    assert machines.in_container("id", "-u").stdout.strip() == str(os.getuid())
    assert machines.in_container("touch", "/usr/here").returncode != 0
    published = subprocess.run(
        [*_COMPOSE.split(), "ps", "--format", "{{.Ports}}"], cwd=machines.of("server"), env=machines.environment,
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert set(re.findall(r":(\d+)->", published)) == {machines.environment["PORT"]}, published
    states = [list((machines.of(name) / "state").glob("*/client-*/after-*.safetensors")) for name in WARDS]
    assert all(states)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        sys.exit("no Docker engine answers here; install Docker with Compose, 2.17 or later, and start it")
    guide.PATIENCE = 3600  # an image is built meanwhile
    with tempfile.TemporaryDirectory(prefix="holdfast-compose-") as folder:
        machines = Contained(Path(folder))
        try:
            machines.carry_out()
            check(machines)
        finally:
            machines.stop()
    sys.stdout.write("the compose file ran to the last round\n")


if __name__ == "__main__":
    main()
