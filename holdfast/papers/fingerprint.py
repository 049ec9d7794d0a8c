"""What results depend on, as digests: the declaration of the experiment and the source code its cells run.

Results whose fingerprint differs from today's are stale, and the difference says why. Comments, docstrings and blank
lines don't count: rewording an explanation must not throw away hours of computing.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import json
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import ConfigError, nearest
from holdfast.papers.experiment import Cell, Experiment, Scale, load_function

_PACKAGE = Path(holdfast.__file__).parent


@dataclass(frozen=True)
class Fingerprint:
    """Digests of what decides an experiment's results.

    Attributes:
        declaration: of cells, printed numbers and claims.
        sources: of the code, by package or module.
    """

    declaration: str
    sources: Mapping[str, str]

    def stale_since(self, now: Fingerprint) -> str | None:
        """Why results with this fingerprint are stale today, or None if they aren't.

        Args:
            now: the fingerprint of the experiment as it stands.

        Returns:
            A phrase such as ``"declaration changed"`` or ``"data, training changed since"``.
        """
        if self.declaration != now.declaration:
            return "declaration changed"
        changed = self.changed(now)
        return f"{', '.join(changed)} changed since" if changed else None

    def changed(self, now: Fingerprint) -> list[str]:
        """The packages or modules whose code is another one now."""
        names = sorted({*self.sources, *now.sources})
        return [name for name in names if self.sources.get(name) != now.sources.get(name)]


def fingerprint(experiment: Experiment, scale: Scale) -> Fingerprint:
    """The fingerprint of an experiment as it stands."""
    sources: dict[str, str] = {}
    for cell in experiment.cells_at(scale):
        sources |= cell_sources(cell, experiment.depends)
    return Fingerprint(_declaration(experiment, scale), dict(sorted(sources.items())))


def cell_sources(cell: Cell, depends: Iterable[str] = ()) -> dict[str, str]:
    """Digest of each package or module that a cell's outcome depends on, by name.

    Args:
        cell: the cell.
        depends: what the experiment adds, names below ``holdfast``.

    Returns:
        Digests by name; the module of the cell's function is among them.
    """
    load_function(cell.function)
    module = sys.modules[cell.function.partition(":")[0]]
    file = inspect.getsourcefile(module)
    assert file is not None
    own = module.__name__.removeprefix(f"{_PACKAGE.name}.")
    return {name: _package_digest(name) for name in (*depends, *cell.depends)} | {own: _files_digest([Path(file)])}


def digest(value: Any) -> str:
    """A short digest of plain JSON values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _declaration(experiment: Experiment, scale: Scale) -> str:
    cells = experiment.cells_at(scale)
    return digest(
        {
            "cells": [
                [cell.name, cell.function, dict(cell.settings), *([] if cell.most_seeds is None else [cell.most_seeds])]
                for cell in cells
            ],
            "printed": {
                cell.name: {metric: asdict(number) for metric, number in experiment.printed.get(cell.name, {}).items()}
                for cell in cells
            },
            "claims": [[claim.name, list(claim.scales), _function_source(claim.check)] for claim in experiment.claims],
            "spread": experiment.spread,
        }
    )


def _function_source(function: Callable[..., Any]) -> str:
    """The source of a predicate, with the values bound to it."""
    if isinstance(function, functools.partial):
        bound = [*function.args, *(item for pair in sorted(function.keywords.items()) for item in pair)]
        return _function_source(function.func) + str([_bound(value) for value in bound])
    closure = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return textwrap.dedent(inspect.getsource(function)) + str([_bound(value) for value in closure])


def _bound(value: Any) -> str:
    if inspect.isfunction(value):
        return _function_source(value)
    plain = value is None or isinstance(value, (bool, int, float, str, tuple, list, dict))
    return repr(value) if plain else type(value).__qualname__  # never an address, which differs from run to run


def _package_digest(name: str) -> str:
    path = _PACKAGE.joinpath(*name.split("."))
    if path.is_dir():
        return _files_digest(sorted(path.rglob("*.py")))
    if path.with_suffix(".py").is_file():
        return _files_digest([path.with_suffix(".py")])
    known = [entry.stem for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ConfigError(f"an experiment depends on {name!r}, which holdfast doesn't have{nearest(path.name, known)}")


def _files_digest(files: Iterable[Path]) -> str:
    return digest([[file.name, _file_digest(file, file.stat().st_mtime_ns)] for file in files])


@functools.cache
def _file_digest(file: Path, modified: int) -> str:
    """The digest of a file; its time of change is only there for the cache."""
    return digest(_code_lines(file.read_text()))


def _code_lines(source: str) -> list[str]:
    """The lines of a module without comments, docstrings and blank lines; the same under every version of Python."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            _blank_docstring(node.body[0], lines)
    return [line.rstrip() for line in lines if line.strip()]


def _blank_docstring(first: ast.stmt, lines: list[str]) -> None:
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return
    start, end = first.lineno - 1, first.end_lineno or first.lineno
    if not lines[start][: first.col_offset].strip():
        lines[start:end] = [""] * (end - start)
