"""Programs that a model has written as its answer; the last line they print is the answer.

A program runs in the sandbox of this machine (`sandbox`), without input, with limits on time, memory and output.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.finetuning.evaluation.sandbox import Limits, Sandbox, find_sandbox

_TOO_LONG = "it took too long"
_PRINTED = 2**16  # bytes that a program may print
_SIGNALLED = 128  # a sandbox ends with this and the number of the signal that ended the program
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_NEXT_QUESTION = re.compile(r"\n#+\s*(?:Instruction|Question|Problem)\b", re.IGNORECASE)


@dataclass(frozen=True)
class ProgramOutcome:
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


def run_program(program: str, *, timeout: float = 10.0, memory_mb: int = 1024) -> ProgramOutcome:
    """Run a program in a sandbox.

    Args:
        program: Python; NumPy, SymPy and SciPy are there if they are here, or in the container's image.
        timeout: seconds after which it is killed.
        memory_mb: megabytes of address space; NumPy and SymPy alone take about 200.

    Returns:
        What it printed last, or why that doesn't count.

    Raises:
        ConfigError: on a machine without a sandbox, or if a limit is not above 0.
    """
    if timeout <= 0 or memory_mb <= 0:
        raise ConfigError(f"timeout is {timeout} and memory_mb {memory_mb}; both must be above 0")
    sandbox = find_sandbox()
    with tempfile.TemporaryDirectory(prefix="holdfast-program-") as folder:
        Path(folder).chmod(0o755)  # a container's user is nobody
        (Path(folder) / "program.py").write_bytes(program.encode(errors="replace"))
        code, printed, errors, stopped = _run(sandbox, Path(folder), Limits(timeout, memory_mb))
    why = stopped
    if not stopped and code > _SIGNALLED:
        why = f"it was ended by {signal.Signals(code - _SIGNALLED).name}"
    elif not stopped and code != 0:
        why = errors[-1] if errors else f"it ended with status {code}"
    elif not stopped and not printed:
        why = "it printed nothing"
    return ProgramOutcome(None, False, why) if why else ProgramOutcome(printed[-1], True, "")


def _run(sandbox: Sandbox, folder: Path, limits: Limits) -> tuple[int, list[str], list[str], str]:
    """The status a program ended with, the lines it printed, those of its errors, and why it had to be stopped."""
    deadline = time.monotonic() + limits.seconds + sandbox.startup
    with subprocess.Popen(  # noqa: S603 - running it is the point
        sandbox.command(folder, limits),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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


def _is_python(program: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about the program
            ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
