"""Fill the documentation with measured results: `python docs/generate.py`, or `make docs`.

A page of results is written for every file below ``results/``, and its figure beside it where it has one. In other
pages, what stands between ``<!-- results: PAPER/EXPERIMENT.SCALE -->`` and ``<!-- end results -->`` is replaced by the
table of that file. Nothing between the marks is written by hand, and a test compares the committed pages with what this
script would write.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.papers.benchmarks import Benchmark, read_benchmarks
from holdfast.papers.engine import render
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.results import read_results

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"

_BLOCK = re.compile(r"(<!-- results: (?P<name>\S+) -->\n).*?(<!-- end results -->)", re.DOTALL)
_NOTE = "<!-- Written by docs/generate.py from {file}; edit neither. -->\n\n"


def pages(docs: Path = DOCS, results: Path = RESULTS) -> dict[Path, str]:
    """What every page of the documentation should say.

    Args:
        docs: the folder of the documentation.
        results: the folder of the results files.

    Returns:
        Text by file: pages of results, figures beside the results files, and the pages that have marked blocks.
    """
    made, drawn = {}, {}
    for file in sorted(results.glob("*/*.json")):
        if file.parent.name != "benchmarks":
            name = f"{file.parent.name}/{file.stem}"
            page, measured, picture = _page(docs, name), read_results(file), None
            if measured.complete and (draw := find(measured.experiment).figure) is not None:
                drawn[file.with_suffix(".svg")] = draw(measured)
                picture = Path(os.path.relpath(file.with_suffix(".svg"), page.parent)).as_posix()
            made[page] = _NOTE.format(file=f"results/{name}.json") + render.markdown(measured, picture=picture)
    if benchmarks := read_benchmarks(results):
        made[docs / "results" / "benchmarks.md"] = _benchmarks(benchmarks)
    made[docs / "results" / "README.md"] = _index(docs, list(made))
    for page in sorted(docs.rglob("*.md")):
        if page not in made and _BLOCK.search(text := page.read_text()):
            made[page] = _filled(text, page, docs, results)
    return made | drawn


def _filled(text: str, page: Path, docs: Path, results: Path) -> str:
    """The text with the current table in each marked block."""
    return _BLOCK.sub(lambda block: block[1] + _table(page, block["name"], docs, results) + block[3], text)


def _page(docs: Path, name: str) -> Path:
    return docs / "results" / f"{name}.md"


def _table(page: Path, name: str, docs: Path, results: Path) -> str:
    """The table of one results file, and where the rest of it is."""
    file = results / f"{name}.json"
    experiment, scale = name.rsplit(".", 1)
    if not file.exists():
        return f"\nNot measured yet: `holdfast reproduce {experiment} --scale {scale}` does.\n\n"
    measured, declared = read_results(file), find(experiment)
    heading = render.heading(declared, measured)
    lines = [heading, ["---"] * len(heading), *render.rows(declared, measured)]
    link = Path(os.path.relpath(_page(docs, name), page.parent)).as_posix()
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return (
        f"\n{declared.source}, at scale `{scale}`: ours over {render.seeds_said(measured)}"
        f"{', beside the printed numbers' if 'printed' in heading else ''}.{render.fewer_seeds(measured)} "
        f"[Claims and how to repeat it]({link}).\n\n{body}\n\n"
    )


def _benchmarks(measured: Sequence[Benchmark]) -> str:
    """Every measured ratio with its target, one table per benchmark."""
    parts = [_NOTE.format(file="results/benchmarks/"), "# Benchmarks\n\n"]
    parts.append("Ratios to a named peer in the same run, on a machine with two cores. Targets missed are shown too.\n")
    for benchmark in measured:
        parts.append(f"\n## {benchmark.name}\n\n```sh\npython benchmarks/{benchmark.name}.py\n```\n\n")
        parts.append("| ratio | value | target | met |\n| --- | --- | --- | --- |\n")
        for ratio in benchmark.ratios:
            spread = "" if ratio.spread is None else f" ± {ratio.spread:.2g}"
            bound = "at most" if ratio.better == "lower" else "at least"
            met = "yes" if ratio.met else "no"
            parts.append(f"| {ratio.name} | {ratio.value:.3g}{spread} | {bound} {ratio.target} | {met} |\n")
    return "".join(parts)


def _index(docs: Path, made: list[Path]) -> str:
    names = [page.relative_to(docs / "results").as_posix() for page in made]
    entries = [f"- [{name.removesuffix('.md')}]({name})" for name in names]
    listed = "\n".join(entries) or "None has been committed yet."
    return (
        "<!-- Written by docs/generate.py; don't edit. -->\n\n# Results\n\n"
        "Made by `holdfast reproduce` ([guide](../guides/reproduce.md)) and by the scripts in `benchmarks/`.\n\n"
        f"{listed}\n"
    )


def main() -> None:
    """Write the pages that differ and say which."""
    for page, text in pages().items():
        if not page.exists() or page.read_text() != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
            sys.stdout.write(f"wrote {page.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
