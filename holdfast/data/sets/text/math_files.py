r"""The document's other test sets, out of the files that they are published as: MATH, NumGLUE, SimulEq, Mathematics.

None of them can be fetched by us with a known checksum, so you name the file. A response is a solution and, on a line
of its own, ``####`` and the answer, as `math_problems` writes it.

- MATH (Hendrycks et al. 2021, https://arxiv.org/abs/2103.03874): a folder of JSON files, or JSON lines, with
  ``problem``, ``solution`` (its answer in ``\boxed{}``) and ``type``.
- NumGLUE (Mishra et al. 2022, https://arxiv.org/abs/2204.05660): JSON lines with ``question`` (or ``passage`` before
  it), ``answer`` (a number, or a mapping with spans, a number or a date) and ``type``.
- SimulEq (Koncel-Kedziorski et al. 2016, https://aclanthology.org/N16-1136): a JSON list with ``sQuestion``,
  ``lEquations`` and ``lSolutions``.
- Mathematics (Saxton et al. 2019, https://arxiv.org/abs/1904.01557): text files, a question and its answer on
  alternating lines; the file's name is the kind of question.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import DataError, nearest

Triple = tuple[str, str, str]


def read_math_file(form: str, path: Path) -> Instructions:
    """Read a published file, or a folder of them, of one of the test sets.

    Args:
        form: ``math``, ``numglue``, ``simuleq`` or ``mathematics``.
        path: the file or folder.

    Returns:
        Prompts and responses, their source being the kind of problem.

    Raises:
        DataError: if there is no such form, or the file has another.
    """
    if form not in _READERS:
        raise DataError(f"there is no form {form!r} of math problems{nearest(form, _READERS)}")
    if not path.exists():
        raise DataError(f"there is no file {path}; give the file or folder that the set is published as")
    rows = list[dict[str, str]]()
    files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES) if path.is_dir() else [path]
    for file in files:
        try:
            rows += [
                {"prompt": prompt, "response": response, "source": kind}
                for prompt, response, kind in _READERS[form](file)
            ]
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise DataError(
                f"{file} holds no problems in the form {form} ({reason}); give the file as published"
            ) from error
    if not rows:
        raise DataError(f"{path} holds no problems in the form {form}; give the file or folder as published")
    return Instructions.of(rows, name=str(path))


def boxed(solution: str) -> str:
    r"""What stands in the last ``\boxed{}`` of a solution, braces inside it included.

    Raises:
        ValueError: if there is none, or it does not end.
    """
    start = solution.rfind("\\boxed{")
    if start < 0:
        raise ValueError("a solution has no \\boxed{}")
    depth, begin = 0, start + len("\\boxed")
    for place in range(begin, len(solution)):
        depth += (solution[place] == "{") - (solution[place] == "}")
        if depth == 0:
            return solution[begin + 1 : place].strip()
    raise ValueError("a \\boxed{} does not end")


def _math(path: Path) -> Iterator[Triple]:
    for problem in _mappings(path):
        answer = boxed(problem["solution"])
        yield problem["problem"].strip(), _ending(problem["solution"].strip(), answer), str(problem["type"])


def _numglue(path: Path) -> Iterator[Triple]:
    for problem in _mappings(path):
        answer, passage = _plain_answer(problem["answer"]), str(problem.get("passage") or "").strip()
        prompt = f"{passage}\n{problem['question'].strip()}" if passage else problem["question"].strip()
        yield prompt, _ending(answer, answer), str(problem.get("type", "numglue"))


def _simuleq(path: Path) -> Iterator[Triple]:
    for problem in _mappings(path):
        answer = ", ".join(f"{float(value):.10g}" for value in problem["lSolutions"])
        yield problem["sQuestion"].strip(), _ending("\n".join(problem["lEquations"]), answer), "simuleq"


def _mathematics(path: Path) -> Iterator[Triple]:
    lines = path.read_text("utf-8").splitlines()
    if len(lines) % 2:
        raise ValueError("a question has no answer")
    for question, answer in zip(lines[::2], lines[1::2], strict=True):
        yield question.strip(), _ending(answer.strip(), answer.strip()), path.stem


_READERS: Mapping[str, Callable[[Path], Iterator[Triple]]] = {
    "math": _math,
    "numglue": _numglue,
    "simuleq": _simuleq,
    "mathematics": _mathematics,
}
_SUFFIXES = (".json", ".jsonl", ".txt")


def _mappings(path: Path) -> list[dict[str, Any]]:
    """The problems of a file: one mapping, a list of them, or a line each."""
    text = path.read_text("utf-8-sig")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    return found if isinstance(found, list) else [found]


def _plain_answer(answer: Any) -> str:
    """A number or a text, also out of DROP's mapping of spans, number and date."""
    if not isinstance(answer, Mapping):
        return str(answer).strip()
    if answer.get("number") not in (None, ""):
        return str(answer["number"])
    if answer.get("spans"):
        return ", ".join(map(str, answer["spans"]))
    date = answer.get("date") or {}
    parts = [str(date[name]) for name in ("day", "month", "year") if date.get(name)]
    if not parts:
        raise ValueError("an answer is empty")
    return " ".join(parts)


def _ending(solution: str, answer: str) -> str:
    return f"#### {answer}" if solution == answer else f"{solution}\n#### {answer}"
