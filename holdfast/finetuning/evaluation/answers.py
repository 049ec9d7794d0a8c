r"""Whether an answer is right, by math-verify (https://github.com/huggingface/Math-Verify), as the field judges it.

math-verify finds the answer in a text (``\boxed{...}``, ``the answer is ...``, otherwise the last formula or number),
reads LaTeX and plain numbers without running them, and compares values: fractions with decimals, expressions with
their expansions, sets in any order. Decimals must agree when rounded to six places; ``50%`` is 0.5 and also 50; units
that it knows are read over. Two things it does not know are done before: what follows a new question is cut off, since
models that don't stop go on with questions of their own, and ``####`` announces an answer, as GSM8K writes it.

MAmmoTH's pipeline, by which the published numbers of S2L were taken, compares numbers as text on five of its six sets
and on MATH takes any number that rounds to the integer asked for; accuracies on MATH are at most that rule's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError, MissingDependencyError

_LONGEST = 10_000  # characters of a text that are looked at, from its end
_START = 120.0  # seconds for importing SymPy on a busy machine
_SECONDS = 5  # for reading an answer, and again for comparing it: math-verify's own limit
_PATIENCE = 60.0  # seconds after which the process is stopped that did not keep to it
_NEXT_QUESTION = re.compile(r"\n\s*(?:#+\s*(?:Instruction|Question|Problem)\b|(?:Question|Problem|Q|User)\s*:)", re.I)
_LONG_DECIMAL = re.compile(r"(?<![\w.])-?\d+(?:\.\d{9,}(?:e[-+]?\d+)?|(?:\.\d+)?e[-+]?\d+)(?![\w.])")
_WRAPPED = re.compile(r"^\[(.*)\]$|^\{(?=\w+:)(.*)\}$")
_NAMED = re.compile(r"\b([a-zA-Z]\w*): ")
_PI = re.compile(r"(?<!\\)\bpi\b")
_DIGITS = 12  # of a number that a program computed; the others are noise


def exact_match(texts: Sequence[str], golds: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts end in the right answer.

    Args:
        texts: what a model has written.
        golds: the right answers, without their derivations.

    Returns:
        bool of shape (n,); a text without an answer is wrong, and so is one that can't be judged within seconds.

    Raises:
        DataError: if there are not as many answers as texts.
        MissingDependencyError: without math-verify.
    """
    if len(texts) != len(golds):
        raise DataError(f"there are {len(texts)} texts and {len(golds)} right answers; give one answer per text")
    pairs = [(_end_of(text), gold) for text, gold in zip(texts, golds, strict=True)]
    right = list[bool]()
    while len(right) < len(pairs):
        right += _judged(pairs[len(right) :])
    return np.array(right, dtype=np.bool_)


def until_next_question(text: str) -> str:
    """What a model has written before it asked itself another question."""
    return _NEXT_QUESTION.split(text.strip(), maxsplit=1)[0]


def printed_answer(printed: str) -> str:
    r"""A line that a program has printed as a text that announces it, in LaTeX.

    Args:
        printed: such as ``99999.99999999999``, ``2*sqrt(3)**3``, ``[1, 2]`` or ``{x: 1, y: 2}``.

    Returns:
        Such as ``\boxed{100000}``: twelve digits of what was computed in floating point, a list as several answers.
    """
    line = _LONG_DECIMAL.sub(lambda number: _written_out(round(float(number[0]), _DIGITS)), printed).replace("**", "^")
    line = _NAMED.sub(r"\1=", _WRAPPED.sub(r"\1\2", line.strip()))
    return r"\boxed{" + _PI.sub(r"\\pi ", line) + "}"


def _written_out(number: float) -> str:
    return np.format_float_positional(number, precision=_DIGITS, unique=False, fractional=False, trim="-")


def _end_of(text: str) -> str:
    """Where the answer of a text stands."""
    text = until_next_question(text)
    return (text.rpartition("####")[2].strip() or text)[-_LONGEST:]


def _judged(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Judge pairs in a new process; where it has to be stopped, the pair that it was at is wrong and the last one."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingDependencyError("judging answers needs math-verify; install it with `pip install 'holdfast[llm]'`")
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, str(Path(__file__).with_name("judging.py")), str(_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # SymPy's order of things may depend on it
        ) as process,
    ):
        try:
            return _verdicts(process, pairs, errors)
        finally:
            process.kill()


def _verdicts(process: subprocess.Popen[str], pairs: Sequence[tuple[str, str]], errors: IO[str]) -> list[bool]:
    assert process.stdin is not None and process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    try:
        with process.stdin as stream:
            json.dump(pairs, stream)
        ready = lines.get(timeout=_START)
    except (BrokenPipeError, queue.Empty):
        ready = ""
    if not ready:
        process.kill()
        process.wait()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["it did not say why"])[-1]
        raise MissingDependencyError(
            f"math-verify can't be started ({last}); install it again with `pip install 'holdfast[llm]'`"
        )
    right = list[bool]()
    while len(right) < len(pairs):
        try:
            line = lines.get(timeout=_PATIENCE)
        except queue.Empty:
            line = ""
        right.append(line == "1\n")
        if not line:
            break
    return right


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    """Pass lines on; an empty one says that there are no more."""
    for line in stream:
        lines.put(line)
    lines.put("")
