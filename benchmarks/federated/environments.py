"""The peers' own virtual environments, made once: their versions of packages never meet holdfast's."""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
SAME = ("torch", "numpy")


def pinned() -> list[str]:
    """Torch and numpy in the versions of the repository's constraints; the rest is the peer's choice."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in SAME]


def make_environment(peer: str, folder: Path) -> Path:
    """The folder of a peer's environment with the peer installed; an unfinished one is made anew."""
    place = folder / peer
    done = place / "installed.txt"
    wanted = "\n".join([*pinned(), PEERS[peer]])
    if not (done.exists() and done.read_text() == wanted):
        print(f"installing {PEERS[peer]} into {place}")
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *pinned(), PEERS[peer]], check=True)  # noqa: S603
        done.write_text(wanted)
    return place
