"""How to run a program that nobody has read: inside bubblewrap, or inside a container of docker or podman.

Either gives it no network, no process but its own, no environment, and a read-only file system of the interpreter and
the packages that mathematical programs import; no file of the user is in it. Memory, computing time and processes are
limited by the kernel, except that it counts no processes where root runs bubblewrap: there a program that forks ends
with its time only. Where neither is to be had, programs are refused: hooks inside their own interpreter stop nobody.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.errors import ConfigError

IMAGE = "HOLDFAST_SANDBOX_IMAGE"  # the environment variable that names the image of containers
_CONTAINERS = ("podman", "docker")
_PACKAGES = ("numpy", "sympy", "mpmath", "scipy")  # what programs of the math sets import
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}  # the same output each time; no threads
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)  # what an interpreter is linked to
_INSIDE = "/program"
_NOBODY = "65534"
_OPEN_FILES = 64
_PROCESSES = 32  # of a container, threads included
_PROBE = 60.0  # seconds for trying out a sandbox


@dataclass(frozen=True)
class Limits:
    """What a program may use: seconds until it is killed, and megabytes of memory."""

    seconds: float = 10.0
    memory_mb: int = 1024

    @property
    def cpu_seconds(self) -> int:
        """Seconds of computing; more than may pass, so that it ends a program only that nobody waits for any more."""
        return math.ceil(self.seconds) + 1


@dataclass(frozen=True)
class Bubblewrap:
    """bubblewrap (https://github.com/containers/bubblewrap), with util-linux's ``prlimit`` for limits.

    Attributes:
        bwrap: the path of the command.
        prlimit: that of the other.
        startup: seconds that it takes at most before a program runs.
    """

    bwrap: str
    prlimit: str
    startup: float = 0.0

    def command(self, folder: Path, limits: Limits) -> list[str]:
        """The command that runs ``program.py`` of a folder."""
        python, packages = os.path.realpath(sys.executable), _package_folders()
        seen = dict.fromkeys([*_SYSTEM, sys.base_prefix, *packages])
        environment = {**_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(packages)}
        return [
            *(self.bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--uid", _NOBODY, "--gid", _NOBODY, "--clearenv"),
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *(word for place in seen for word in ("--ro-bind-try", place, place)),
            *("--dev", "/dev", "--ro-bind", str(folder), _INSIDE, "--chdir", _INSIDE),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *(self.prlimit, f"--as={limits.memory_mb * 2**20}", f"--cpu={limits.cpu_seconds}", "--nproc=1"),
            *(f"--nofile={_OPEN_FILES}", "--fsize=0", "--core=0"),
            *(python, "-S", "-s", "-B", "-X", "utf8", "program.py"),
        ]


@dataclass(frozen=True)
class Container:
    """A container runtime, and an image that has Python as ``python`` and the packages that programs import.

    Attributes:
        runtime: the path of docker or podman.
        image: its name; it must be there already.
        startup: seconds that it takes at most before a program runs.
    """

    runtime: str
    image: str
    startup: float = 20.0

    def command(self, folder: Path, limits: Limits) -> list[str]:
        """The command that runs ``program.py`` of a folder; the container ends itself, also when nobody waits."""
        memory = f"{limits.memory_mb}m"
        return [
            *(
                self.runtime,
                "run",
                "--rm",
                "--pull",
                "never",
                "--network",
                "none",
                "--read-only",
                "--log-driver",
                "none",
            ),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{_NOBODY}:{_NOBODY}"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(_PROCESSES)),
            *("--ulimit", f"cpu={limits.cpu_seconds}", "--ulimit", f"nofile={_OPEN_FILES}", "--ulimit", "core=0"),
            *(word for name, value in _ENVIRONMENT.items() for word in ("--env", f"{name}={value}")),
            *("--volume", f"{folder}:{_INSIDE}:ro", "--workdir", _INSIDE, "--entrypoint", "timeout", self.image),
            *("-s", "KILL", str(limits.seconds), "python", "-B", "-X", "utf8", "program.py"),
        ]


Sandbox = Bubblewrap | Container


def find_sandbox() -> Sandbox:
    """The sandbox of this machine: bubblewrap where it works, otherwise podman or docker with an image.

    Raises:
        ConfigError: if there is none; the message says what was tried and what to install.
    """
    found, why = _tried(os.environ.get(IMAGE, ""))
    if found is None:
        tried = "; ".join(f"{name}: {reason}" for name, reason in why.items())
        raise ConfigError(
            f"programs that a model wrote run in a sandbox only, and none works here ({tried}); install bubblewrap, or "
            f"name an image with Python, NumPy and SymPy for podman or docker in {IMAGE}"
        )
    return found


@cache
def _tried(image: str) -> tuple[Sandbox | None, Mapping[str, str]]:
    """The first sandbox in which a program runs, and why those before it don't; once, since trying takes a while."""
    why = dict[str, str]()
    for name in ("bwrap", *_CONTAINERS):
        sandbox = _installed(name, image)
        if isinstance(sandbox, str):
            why[name] = sandbox
        elif reason := _refusal(sandbox):
            why[name] = reason
        else:
            return sandbox, why
    return None, why


def _installed(name: str, image: str) -> Sandbox | str:
    """A sandbox that is there, or what is missing."""
    path, prlimit = shutil.which(name), shutil.which("prlimit")
    if path is None:
        return "not installed"
    if name in _CONTAINERS:
        return Container(path, image) if image else f"{IMAGE} names no image"
    return "prlimit of util-linux is missing" if prlimit is None else Bubblewrap(path, prlimit)


def _refusal(sandbox: Sandbox) -> str:
    """Why a program of one line doesn't run in a sandbox; empty where it does."""
    with tempfile.TemporaryDirectory(prefix="holdfast-program-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "program.py").write_text("print(6 * 7)")
        try:
            done = _probed(sandbox.command(Path(folder), Limits()))
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.stdout.strip() == "42":
        return ""
    return (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]


def _probed(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own program of one line
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE, check=False
    )


@cache
def _package_folders() -> tuple[str, ...]:
    """Where the packages are that programs may import."""
    found = [importlib.util.find_spec(package) for package in _PACKAGES]
    places = [place for spec in found if spec for place in spec.submodule_search_locations or ()]
    return tuple(dict.fromkeys(str(Path(place).parent) for place in places))
