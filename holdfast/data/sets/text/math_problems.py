"""Math word problems with their solutions, as prompts and responses: GSM8K, MAWPS with ASDiv, and SVAMP.

A response is a derivation and, on a line of its own, ``####`` and the answer, as GSM8K writes it. The other two have
an equation for a derivation, which is written out with its numbers.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.data.download import fetch
from holdfast.data.readers.instructions import Instructions
from holdfast.data.remote_files import Progress, RemoteFile
from holdfast.errors import DataError

_GSM8K = "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data"
_GSM8K_MIRROR = "https://cdn.jsdelivr.net/gh/openai/grade-school-math@master/grade_school_math/data"
_SVAMP = "https://raw.githubusercontent.com/arkilpatel/SVAMP/main"
_SVAMP_MIRROR = "https://cdn.jsdelivr.net/gh/arkilpatel/SVAMP@main"

FILES = {
    "gsm8k": RemoteFile(
        "math/gsm8k_train.jsonl",
        f"{_GSM8K}/train.jsonl",
        sha256="17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        mirrors=(f"{_GSM8K_MIRROR}/train.jsonl",),
    ),
    "gsm8k-test": RemoteFile(
        "math/gsm8k_test.jsonl",
        f"{_GSM8K}/test.jsonl",
        sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        mirrors=(f"{_GSM8K_MIRROR}/test.jsonl",),
    ),
    "mawps-asdiv": RemoteFile(
        "math/mawps_asdiv_train.csv",
        f"{_SVAMP}/data/mawps-asdiv-a_svamp/train.csv",
        sha256="c761cdc6390a67a285c6c346a2931f61bc8f47430eceaeb123cc3d0263efa821",
        mirrors=(f"{_SVAMP_MIRROR}/data/mawps-asdiv-a_svamp/train.csv",),
    ),
    "svamp": RemoteFile(
        "math/SVAMP.json",
        f"{_SVAMP}/SVAMP.json",
        sha256="5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
        mirrors=(f"{_SVAMP_MIRROR}/SVAMP.json",),
    ),
}

_CALCULATION = re.compile(r"<<.*?>>")
_PLACEHOLDER = re.compile(r"\bnumber(\d+)\b")
_OPERATIONS = ("+", "-", "*", "/")

Pair = tuple[str, str]


def load_math_problems(name: str, root: Path, progress: Progress | None = None) -> Instructions:
    """Read a set of math word problems, fetching its file where it is missing.

    Args:
        name: ``gsm8k``, ``gsm8k-test``, ``mawps-asdiv`` or ``svamp``.
        root: where data sets live.
        progress: told how far a transfer is.

    Returns:
        Prompts and responses, their source being `name`.

    Raises:
        DataError: if there is no such set, or its file can't be had or read.
    """
    if name not in FILES:
        raise DataError(f"there are no math problems called {name!r}; known are {', '.join(FILES)}")
    path = fetch(FILES[name], root, progress)
    read = _READERS[name]
    try:
        rows = [{"prompt": prompt, "response": response, "source": name} for prompt, response in read(path)]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(f"{path} holds no math problems as they are published ({error}); fetch it again") from error
    return Instructions.of(rows, name=str(path))


def final_answer(response: str) -> str:
    """What a response gives as its answer, after the last ``####``."""
    return response.rpartition("####")[2].strip()


def _gsm8k(path: Path) -> Iterator[Pair]:
    for line in path.read_text("utf-8").splitlines():
        problem = json.loads(line)
        yield problem["question"].strip(), _CALCULATION.sub("", problem["answer"]).strip()


def _mawps(path: Path) -> Iterator[Pair]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = [_number(float(word)) for word in row["Numbers"].split()]
            question = _PLACEHOLDER.sub(lambda slot, numbers=numbers: numbers[int(slot[1])], row["Question"])
            words = [
                _PLACEHOLDER.sub(lambda slot, numbers=numbers: numbers[int(slot[1])], word)
                for word in row["Equation"].split()
            ]
            yield _spaced(question), _solution(_infix(words), float(row["Answer"]))


def _svamp(path: Path) -> Iterator[Pair]:
    for problem in json.loads(path.read_text("utf-8")):
        body = problem["Body"].strip()
        question = f"{body}{'' if body.endswith(('.', '?', '!')) else '.'} {problem['Question'].strip()}"
        equation = " ".join(word if word in "()+-*/" else _number(float(word)) for word in problem["Equation"].split())
        yield _spaced(question), _solution(_stripped(equation), float(problem["Answer"]))


_READERS: dict[str, Callable[[Path], Iterator[Pair]]] = {
    "gsm8k": _gsm8k,
    "gsm8k-test": _gsm8k,
    "mawps-asdiv": _mawps,
    "svamp": _svamp,
}


def _infix(words: list[str]) -> str:
    """An equation in prefix notation as people write it, with brackets where they are needed."""
    stack = list[tuple[str, bool]]()
    for word in reversed(words):
        if word in _OPERATIONS:
            (left, left_joined), (right, right_joined) = stack.pop(), stack.pop()
            one = f"( {left} )" if left_joined else left
            other = f"( {right} )" if right_joined else right
            stack.append((f"{one} {word} {other}", True))
        else:
            stack.append((_number(float(word)), False))
    ((equation, _),) = stack
    return equation


def _solution(equation: str, answer: float) -> str:
    return f"{equation} = {_number(answer)}\n#### {_number(answer)}"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _spaced(text: str) -> str:
    """Text without blanks before its punctuation."""
    return re.sub(r"\s+([.,?!])", r"\1", " ".join(text.split()))


def _stripped(equation: str) -> str:
    """An equation without the brackets around all of it."""
    if equation.startswith("( ") and equation.endswith(" )"):
        inner, depth = equation[2:-2], 0
        for letter in inner:
            depth += (letter == "(") - (letter == ")")
            if depth < 0:
                return equation
        return inner
    return equation
