"""What golden cells let pass and what they notice.

``rounding`` computes all golden cells as another processor would round them: with torch's plain kernels, with oneDNN's
oldest instructions, with both, and with one and two threads. It reports the value that is farthest from the kept one,
as a share of what is tolerated; above 1 a machine of that kind would be red.

``mutants`` changes a copy of the repository, one small mistake at a time, and runs ``pytest -m golden`` there. A
mistake that changes a number must turn at least one cell red. A move, a rename, a mended duplicate or a reworded
docstring must turn none red, orphan no stored value and change no verdict.

Run: ``python benchmarks/golden.py rounding`` (some minutes), ``python benchmarks/golden.py mutants`` (half an hour).
Writes results/benchmarks/golden/rounding.json and mutants.json.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.papers.engine.catalog import PAPERS, experiments_of
from holdfast.papers.engine.golden import ABSOLUTE, RELATIVE, compute, golden_cells, read_golden
from holdfast.papers.engine.jsonfile import write_json
from holdfast.provenance import git_commit, machine

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "results" / "benchmarks" / "golden"

PLAIN = {"ATEN_CPU_CAPABILITY": "default"}
OLDEST = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
WAYS: dict[str, tuple[dict[str, str], int]] = {
    "as it is, 1 thread": ({}, 1),
    "as it is, 2 threads": ({}, 2),
    "ATEN_CPU_CAPABILITY=default": (PLAIN, 1),
    "ONEDNN_MAX_CPU_ISA=SSE41": (OLDEST, 1),
    "both": (PLAIN | OLDEST, 1),
    "both, 2 threads": (PLAIN | OLDEST, 2),
}


@dataclass(frozen=True)
class Mutant:
    """A change of the code.

    Attributes:
        name: what is changed.
        red: whether golden cells must notice.
        changes: file, what is there, what takes its place; every occurrence.
        move: a file and where it goes, with all imports.
    """

    name: str
    red: bool
    changes: tuple[tuple[str, str, str], ...] = ()
    move: tuple[str, str] | None = None


MUTANTS = (
    Mutant(
        "models: every network starts from seed + 1",
        True,
        (
            (
                "holdfast/models/spec.py",
                "default_generator.manual_seed(self.seed)",
                "default_generator.manual_seed(self.seed + 1)",
            ),
        ),
    ),
    Mutant(
        "models: the perceptron has tanh instead of ReLU",
        True,
        (("holdfast/models/networks/mlp.py", "F.relu(layer(hidden))", "layer(hidden).tanh()"),),
    ),
    Mutant(
        "data: data sets draw from seed + 1",
        True,
        (("holdfast/streams.py", "default_rng([seed, ", "default_rng([seed + 1, "),),
    ),
    Mutant(
        "data: the rest of a division goes to the smallest remainders",
        True,
        (("holdfast/data/apportionment.py", "np.argsort(counts - exact", "np.argsort(exact - counts"),),
    ),
    Mutant(
        "training: examples are visited in another order",
        True,
        (("holdfast/training/sampling_order.py", '"draws", self._since, number', '"draws", self._since, number + 1'),),
    ),
    Mutant(
        "training: SGD forgets its weight decay",
        True,
        (
            (
                "holdfast/training/settings.py",
                "nesterov=nesterov, weight_decay=decay",
                "nesterov=nesterov, weight_decay=0",
            ),
        ),
    ),
    Mutant(
        "federated: the proximal term pushes away",
        True,
        (
            (
                "holdfast/federated/engine/proximal.py",
                "alpha=proximal[0], out=distance",
                "alpha=-proximal[0], out=distance",
            ),
        ),
    ),
    Mutant(
        "federated: the trimmed mean drops one value less above",
        True,
        (("holdfast/federated/aggregation/coordinates.py", "trim : m - trim]", "trim : m - trim + 1]"),),
    ),
    Mutant(
        "primitives: PGD takes steps of another size",
        True,
        (("holdfast/primitives/pgd.py", "2.5 * self.epsilon / self.steps", "2.0 * self.epsilon / self.steps"),),
    ),
    Mutant(
        "primitives: facility location takes the second best",
        True,
        (("holdfast/primitives/greedy.py", "exemplar = np.argmax(gains)", "exemplar = np.argsort(gains)[-2]"),),
    ),
    Mutant(
        "training: fit calls torch_threads by another name",
        False,
        (
            (
                "holdfast/training/fitting.py",
                "with torch_threads(self.settings.threads), ",
                "with _threads(self.settings.threads), ",
            ),
            (
                "holdfast/training/fitting.py",
                "from holdfast.primitives.threads import torch_threads",
                "from holdfast.primitives.threads import torch_threads as _threads",
            ),
        ),
    ),
    Mutant(
        "data: coloured digits compute their exact shares themselves",
        False,
        (
            (
                "holdfast/data/sets/images/coloured.py",
                "apportion(rest, np.asarray(ratio, np.float64))",
                "round_to_total(rest * np.asarray(ratio, np.float64) / sum(ratio), rest)",
            ),
            (
                "holdfast/data/sets/images/coloured.py",
                "from holdfast.data.apportionment import apportion",
                "from holdfast.data.apportionment import round_to_total",
            ),
        ),
    ),
    Mutant(
        "coresets: the module of gradient proxies gets another name",
        False,
        move=("holdfast/coresets/crest/gradient_proxies.py", "holdfast/coresets/crest/looking.py"),
    ),
    Mutant(
        "papers: cells.py moves into another folder and a claim's docstring is reworded",
        False,
        (("holdfast/papers/ditto/claims.py", '"""A row is below another in all these columns."""', '"""Reworded."""'),),
        move=("holdfast/papers/common/cells.py", "holdfast/papers/shared/cells.py"),
    ),
)


def rounding() -> None:
    """Compute golden cells in every way and keep the farthest value of each."""
    found = {}
    for way, (environment, threads) in WAYS.items():
        began = time.monotonic()
        answer = subprocess.run(  # noqa: S603
            [sys.executable, __file__, "values", "--threads", str(threads)],
            env={**os.environ, **environment, "OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        share, where = farthest(json.loads(answer.stdout.splitlines()[-1]))
        found[way] = {"share_of_tolerance": share, "value": where, "seconds": round(time.monotonic() - began, 1)}
        print(f"{way}: {share:.3f} of what is tolerated, {where}")
    keep("rounding.json", {"relative": RELATIVE, "absolute": ABSOLUTE, "ways": found})


def values(threads: int) -> None:
    """Print the values of all golden cells."""
    import torch  # noqa: PLC0415  # the mutants' side of this script does without

    torch.set_num_threads(threads)
    print(json.dumps({paper: {name: compute(cell) for name, cell in cells.items()} for paper, cells in everything()}))


def everything() -> Iterator[tuple[str, dict]]:
    for paper in PAPERS:
        yield paper, golden_cells(experiments_of(paper))


def farthest(now: dict[str, dict[str, dict[str, float]]]) -> tuple[float, str]:
    """The largest difference from the kept values, as a share of what is tolerated, and where it is."""
    most = (0.0, "all values are the same to the last bit")
    for paper, cells in now.items():
        kept = read_golden(ROOT / "results", paper)
        for cell, numbers in cells.items():
            floor = ABSOLUTE * max(abs(value) for value in kept[cell].values.values())
            for name, value in kept[cell].values.items():
                share = abs(numbers[name] - value) / max(RELATIVE * abs(value), floor)
                most = max(most, (share, f"{paper}: {cell}: {name}"))
    return most


def mutants(only: str | None) -> None:
    """Try every mutant in a copy of its own."""
    found = []
    for mutant in MUTANTS:
        if only is not None and only not in mutant.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            for part in ("holdfast", "tests", "results"):
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", copy)
            for change in mutant.changes:
                replace_in(copy / change[0], change[1], change[2])
            if mutant.move is not None:
                move(copy, *mutant.move)
            answer = test(copy, first_only=mutant.red)
            entry = {"mutant": mutant.name, "wanted": "red" if mutant.red else "green", **answer}
            if not mutant.red:
                entry["verdicts"] = judged(copy)
            found.append(entry)
            print(json.dumps(entry))
    if only is None:
        keep("mutants.json", {"mutants": found})
    if any(entry["found"] != entry["wanted"] for entry in found):
        raise SystemExit("a mutant was not told from a harmless change, or the other way round")


def replace_in(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if old not in text:
        raise SystemExit(f"{file.name} has no {old!r}; write this mutant anew")
    file.write_text(text.replace(old, new))


def move(copy: Path, old: str, new: str) -> None:
    """Move a module, and change every import of it and every mention of its path."""
    (copy / new).parent.mkdir(parents=True, exist_ok=True)
    (copy / new).parent.joinpath("__init__.py").touch()
    (copy / old).rename(copy / new)
    before, after = (path.removesuffix(".py").replace("/", ".") for path in (old, new))
    for file in copy.rglob("*.py"):
        text = file.read_text()
        changed = re.sub(rf"\b{re.escape(before)}\b", after, text)
        if changed != text:
            file.write_text(changed)


def test(copy: Path, first_only: bool) -> dict[str, str | float]:
    """Run the golden tests of a copy; stop at the first red cell where one is enough."""
    began = time.monotonic()
    words = ["-q", "-m", "golden", "-p", "no:cacheprovider", *(["-x"] if first_only else [])]
    answer = run(copy, ["-m", "pytest", *words, "tests/papers/engine/test_golden.py"])
    first = next((line for line in answer.stdout.splitlines() if line.startswith("FAILED")), "")
    state = {0: "green", 1: "red"}.get(answer.returncode, f"exit code {answer.returncode}")
    cell = first.partition("[")[2].partition("]")[0]
    return {"found": state, "first": cell, "seconds": round(time.monotonic() - began, 1)}


def judged(copy: Path) -> str:
    """Judge all claims in a copy and say whether a results file changed."""
    run(copy, ["-m", "holdfast.cli.main", "reproduce", "--judge", "--results-dir", str(copy / "results")])
    changed = [
        file.name
        for file in (ROOT / "results").glob("*/*.json")
        if file.parent.name != "benchmarks" and not filecmp.cmp(file, copy / file.relative_to(ROOT), shallow=False)
    ]
    return "changed: " + ", ".join(changed) if changed else "unchanged, nothing recomputed"


def run(copy: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    return subprocess.run(  # noqa: S603
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


def keep(name: str, content: dict) -> None:
    write_json(KEPT / name, {"commit": git_commit(), **machine(), **content})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rounding", "mutants", "values"))
    parser.add_argument("--threads", type=int, default=1, help="of values")
    parser.add_argument("--only", help="mutants whose name has this in it; nothing is kept")
    asked = parser.parse_args()
    todo: dict[str, Callable[[], None]] = {
        "rounding": rounding,
        "mutants": lambda: mutants(asked.only),
        "values": lambda: values(asked.threads),
    }
    todo[asked.what]()


if __name__ == "__main__":
    main()
