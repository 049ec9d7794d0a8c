"""Where a result comes from: the commit of the code, the versions of what it runs on, and the machine.

Every record of a result states them, so whoever doubts a number can make the same ground again. Nothing heavy is
imported: versions are read from what is installed.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import holdfast

#: Packages whose release may change a number.
_DECIDING = ("torch", "numpy", "scikit-learn", "numba", "transformers")


def machine() -> dict[str, Any]:
    """Versions and machine, as every record of a result states them."""
    return {
        "holdfast": holdfast.__version__,
        "python": platform.python_version(),
        **{name: found for name in _DECIDING if (found := _version(name)) is not None},
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
    }


def git_commit(folder: Path | None = None) -> str | None:
    """The commit checked out where holdfast's code lies, or None outside a repository."""
    return _git(["rev-parse", "HEAD"], folder)


def uncommitted_changes(folder: Path | None = None) -> bool | None:
    """Whether holdfast's code differs from its commit; None outside a repository."""
    status = _git(["status", "--porcelain", "--", "."], folder)
    return None if status is None else bool(status)


def _git(words: list[str], folder: Path | None) -> str | None:
    try:
        answer = subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607
            cwd=folder or Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name: rounding differs between kinds of them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
