"""How the house is cut, counted: ``python benchmarks/house.py [TREE ...]`` prints a column per checkout of holdfast.

Counts are of the tree as it lies there. CPU seconds are those of fresh processes with this Python, taken in turns with
``import torch`` and given as the ratio to it, mean and range of several runs: what a help page costs depends on the
machine, its ratio hardly.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

RUNS = 7
_COUNT = "import sys; {}; print(sum(name.partition('.')[0] == 'holdfast' for name in sys.modules), file=sys.stderr)"
_HELP = "from holdfast.cli.main import main\ntry:\n main({words!r})\nexcept SystemExit: pass"


def measure(tree: Path) -> dict[str, str]:
    """The column of a checkout."""
    modules = [path for path in (tree / "holdfast").rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)
    largest, files = folders.most_common(1)[0]
    classes = _classes(tree)
    return {
        "modules": str(len(modules)),
        "lines of the package": str(_lines(tree / "holdfast")),
        "lines of tests": str(_lines(tree / "tests")),
        "largest folder": f"{files} ({largest.relative_to(tree)})",
        "files named _more": str(sum(path.stem.endswith("_more") for path in modules)),
        "class names with two meanings": str(len([name for name, places in classes.items() if len(places) > 1])),
        "duplicates found": _duplicates(tree),
        **_imports(tree),
    }


def _lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def _classes(tree: Path) -> dict[str, list[Path]]:
    """Where each class name is defined."""
    places = defaultdict(list)
    for path in (tree / "holdfast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return places


def _duplicates(tree: Path) -> str:
    """Pairs of places that share six or more lines, by the command ``duplicates`` where it is installed."""
    try:
        answer = subprocess.run(  # noqa: S603
            ["duplicates", "--repo", str(tree / "holdfast"), "--most", "200", "--seconds", "120"],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines()
    except FileNotFoundError:
        return "not counted"
    rows = [line for line in answer if line.startswith("D")]
    same = [line for line in rows if " shape" not in line]
    return f"{len(rows)}, of which {len(same)} to the letter"


def _imports(tree: Path) -> dict[str, str]:
    torch = "import torch"
    programs = {
        "import holdfast": "import holdfast",
        "holdfast --help": _HELP.format(words=["--help"]),
        "holdfast fit --help": _HELP.format(words=["fit", "--help"]),
        "holdfast federate --help": _HELP.format(words=["federate", "--help"]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("torch", *programs)}
    for _ in range(RUNS):
        seconds["torch"].append(_cpu(tree, torch))
        for name, program in programs.items():
            seconds[name].append(_cpu(tree, program))
    column = {}
    for name, program in programs.items():
        ratios = [one / other for one, other in zip(seconds[name], seconds["torch"], strict=True)]
        counted = _run(tree, _COUNT.format("exec(" + repr(program) + ")")).stderr.split()[-1]
        column[f"{name}: modules of ours"] = counted
        column[f"{name}: CPU / import torch"] = (
            f"{statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return column


def _cpu(tree: Path, program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(tree, program)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(tree: Path, program: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd="/", env=variables, capture_output=True, text=True, check=True
    )


def main(trees: list[str]) -> None:
    """Print a column per tree, as JSON."""
    columns = {tree: measure(Path(tree).resolve()) for tree in trees or [str(Path(__file__).parents[1])]}
    print(json.dumps(columns, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
