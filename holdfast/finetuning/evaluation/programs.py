"""Programs that a model has written as its answer, run without harm; the last line they print is the answer.

A program runs in a process of its own, in a temporary folder that holds nothing but the program, without environment
and input, with limits on time, memory and output. Linux's seccomp leaves it the system calls of `system_calls` only: it
can compute, read files and print, and can't write, remove or change any file, start a process or a thread, send a
signal or open a socket, even as root. Python's audit hooks refuse most of it once more, in words that say what it was.

What this is not: a program can read every file that its user can read, and print it; so its output belongs to no one
who must not see these files. On machines whose system calls aren't listed (other than x86-64 and 64-bit ARM) and on
kernels without seccomp only the audit hooks and the limits are left. They stop what a model writes by mistake, not an
attacker, who finds a way around hooks inside his own interpreter. There, use a container as well.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.finetuning.evaluation.system_calls import system_call_filter

_TOO_LONG = "it took too long"
_PRINTED = 2**16  # bytes that a program may print
_PACKAGES = ("numpy", "sympy", "mpmath", "scipy")  # what programs of the math sets import
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}  # the same output each time; no threads
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_NEXT_QUESTION = re.compile(r"\n#+\s*(?:Instruction|Question|Problem)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Attributes:
        printed: the last line it printed that isn't empty; None if it did not end well or printed nothing.
        ok: whether it ended well and printed something.
        why: what went wrong; empty if nothing did.
    """

    printed: str | None
    ok: bool
    why: str


def find_program(text: str) -> str | None:
    """The program in a model's text.

    Args:
        text: what a model has written: a program, or prose with a program between triple backquotes.

    Returns:
        The last program that is valid Python and prints something; None where there is none.
    """
    text = _NEXT_QUESTION.split(text, maxsplit=1)[0]
    for program in (*reversed(_BLOCK.findall(text)), text):
        if "print(" in program and _is_python(program):
            return str(program).strip()
    return None


def run_program(program: str, *, timeout: float = 10.0, memory_mb: int = 1024) -> Outcome:
    """Run a program, confined as the module says.

    Args:
        program: Python; NumPy, SymPy and SciPy are there if they are here.
        timeout: seconds after which it is killed.
        memory_mb: megabytes of address space; NumPy and SymPy alone take about 200.

    Returns:
        What it printed last, or why that doesn't count.

    Raises:
        ConfigError: on a system that can't confine it, or if a limit is not above 0.
    """
    if sys.platform != "linux":
        raise ConfigError(f"programs can't be confined on {sys.platform}; run the evaluation on Linux")
    if timeout <= 0 or memory_mb <= 0:
        raise ConfigError(f"timeout is {timeout} and memory_mb {memory_mb}; both must be above 0")
    with tempfile.TemporaryDirectory(prefix="holdfast-program-") as folder:
        file = Path(folder) / "program.py"
        file.write_bytes(program.encode(errors="replace"))
        code, printed, errors, stopped = _run(file, timeout, memory_mb * 2**20)
    why = stopped
    if not stopped and code < 0:
        why = f"it was ended by {signal.Signals(-code).name}"
    elif not stopped and code > 0:
        why = errors[-1] if errors else f"it ended with status {code}"
    elif not stopped and not printed:
        why = "it printed nothing"
    return Outcome(None, False, why) if why else Outcome(printed[-1], True, "")


def _run(file: Path, timeout: float, memory: int) -> tuple[int, list[str], list[str], str]:
    """The status a program ended with, the lines it printed, those of its errors, and why it had to be stopped."""
    deadline = time.monotonic() + timeout
    confined = Path(__file__).with_name("confined.py")
    limits = (str(math.ceil(timeout) + 1), str(memory), (system_call_filter() or b"").hex())
    with subprocess.Popen(  # noqa: S603 - running it is the point
        [sys.executable, "-S", "-s", "-B", "-X", "utf8", str(confined), str(file), *limits, *_folders()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=file.parent,
        env=_ENVIRONMENT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        taken = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        try:
            stopped = _listen(taken, deadline)
            if not stopped:
                process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            stopped = _TOO_LONG
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    printed, errors = (
        [line for line in text.decode(errors="replace").splitlines() if line.strip()] for text in taken.values()
    )
    return process.returncode, printed, errors, stopped


def _listen(taken: dict[int, bytearray], deadline: float) -> str:
    """Read from pipes until they are closed; otherwise why that took too long or was too much."""
    with selectors.DefaultSelector() as selector:
        for pipe in taken:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return _TOO_LONG
            for key, _ in selector.select(left):
                some = os.read(key.fd, _PRINTED)
                taken[key.fd] += some
                if not some:
                    selector.unregister(key.fd)
            if sum(map(len, taken.values())) > _PRINTED:
                return f"it printed more than {_PRINTED} bytes"
    return ""


@cache
def _folders() -> tuple[str, ...]:
    """Where the packages are that programs may import."""
    found = [importlib.util.find_spec(package) for package in _PACKAGES]
    places = [place for spec in found if spec for place in spec.submodule_search_locations or ()]
    return tuple(dict.fromkeys(str(Path(place).parent) for place in places))


def _is_python(program: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about the program
            ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
