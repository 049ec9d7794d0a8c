"""Fill the documentation with measured results: `python docs/generate.py`, or `make docs`.

A page of results is written for every file below ``results/``, and its figure beside it where it has one. In other
pages, what stands between ``<!-- results: PAPER/EXPERIMENT.SCALE -->`` and ``<!-- end results -->`` is replaced by the
table of that file. Nothing between the marks is written by hand, and a test compares the committed pages with what this
script would write.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from holdfast.papers.engine import render
from holdfast.papers.engine.benchmarks import Benchmark, read_benchmarks
from holdfast.papers.engine.capacity import page as page_of_capacity
from holdfast.papers.engine.capacity import read_runs
from holdfast.papers.engine.catalog import PAPERS, experiments_of, find
from holdfast.papers.engine.experiment import SCALES, Experiment, Scale
from holdfast.papers.engine.results import Results
from holdfast.papers.engine.store import Store, draw, figure_file
from holdfast.papers.inventory import DOCUMENTS

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"

# The marks stay, what is between them is replaced; `.*?` stops at the nearest end, so a page may have several blocks.
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
    everything = list(_everything(results))
    for experiment, measured in everything:
        name = f"{experiment.name}.{measured.scale}"
        page, picture = _page(docs, name), None
        if (drawing := draw(experiment, measured)) is not None:
            file = figure_file(results, experiment.name, measured.scale)
            drawn[file] = drawing
            picture = Path(os.path.relpath(file, page.parent)).as_posix()
        made[page] = _NOTE.format(file=f"results/{experiment.paper}/") + render.markdown(
            measured, experiment, picture=picture
        )
    benchmarks = read_benchmarks(results)
    if benchmarks:
        made[docs / "results" / "benchmarks.md"] = _benchmarks(benchmarks)
    if (measured_golden := _golden(results)) is not None:
        made[docs / "results" / "golden.md"] = measured_golden
    capacity = results / "benchmarks" / "capacity" / "runs.json"
    if capacity.exists():
        note = _NOTE.format(file="results/benchmarks/capacity/runs.json")
        made[docs / "results" / "capacity.md"] = note + page_of_capacity(*read_runs(capacity))
    made[docs / "results" / "README.md"] = _index(
        everything, [page.name for page in made if page.parent.name == "results"]
    )
    for page in sorted(docs.rglob("*.md")):
        if page not in made and _BLOCK.search(text := page.read_text()):
            made[page] = _filled(text, page, docs, results)
    return made | drawn


def _everything(results: Path) -> Iterator[tuple[Experiment, Results]]:
    """Every experiment of which something is measured, with its results, document by document."""
    for paper in PAPERS:
        experiments = experiments_of(paper)
        for scale in SCALES:
            store = Store(results, experiments, scale)
            for experiment in store.experiments.values():
                measured = store.results(experiment)
                if measured is not None:
                    yield experiment, measured


def _filled(text: str, page: Path, docs: Path, results: Path) -> str:
    """The text with the current table in each marked block."""
    return _BLOCK.sub(lambda block: block[1] + _table(page, block["name"], docs, results) + block[3], text)


def _page(docs: Path, name: str) -> Path:
    return docs / "results" / f"{name}.md"


def _table(page: Path, name: str, docs: Path, results: Path) -> str:
    """The table of an experiment at a scale, and where the rest of it is."""
    experiment, scale = name.rsplit(".", 1)
    declared = find(experiment)
    measured = Store(results, experiments_of(declared.paper), cast(Scale, scale)).results(declared)
    if measured is None:
        return f"\nNot measured yet: `holdfast reproduce {experiment} --scale {scale}` does.\n\n"
    heading = render.heading(declared, measured)
    lines = [heading, ["---"] * len(heading), *render.rows(declared, measured)]
    link = Path(os.path.relpath(_page(docs, name), page.parent)).as_posix()
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return (
        f"\n{declared.source}, at scale `{scale}`: ours over {render.seeds_in_words(measured)}"
        f"{', beside the printed numbers' if 'printed' in heading else ''}.{render.fewer_seeds(measured)} "
        f"[Claims and how to repeat it]({link}).\n\n{body}\n\n"
    )


def _benchmarks(measured: Sequence[Benchmark]) -> str:
    """Every measured ratio with its target, one table per benchmark."""
    parts = [_NOTE.format(file="results/benchmarks/"), "# Benchmarks\n\n"]
    parts.append(
        "How fast holdfast is and how much memory it takes: ratios to a named peer in the same run, on a machine with "
        "two cores. Each has a target; targets missed are shown too.\n"
    )
    for benchmark in measured:
        script = benchmark.name.replace("-", "_")
        parts.append(f"\n## {benchmark.name}\n\n```sh\npython benchmarks/{script}.py\n```\n\n")
        parts.append("| ratio | value | target | met |\n| --- | --- | --- | --- |\n")
        for ratio in benchmark.ratios:
            spread = "" if ratio.spread is None else f" ± {ratio.spread:.2g}"
            bound = "at most" if ratio.better == "lower" else "at least"
            met = "yes" if ratio.met else "no"
            parts.append(f"| {ratio.name} | {ratio.value:.3g}{spread} | {bound} {ratio.target} | {met} |\n")
    return "".join(parts)


def _golden(results: Path) -> str | None:
    """What golden cells let pass and what they notice, where it was measured."""
    folder = results / "benchmarks" / "golden"
    if not (folder / "mutants.json").exists() or not (folder / "rounding.json").exists():
        return None
    rounding, mutants = (json.loads((folder / f"{name}.json").read_text()) for name in ("rounding", "mutants"))
    parts = [
        _NOTE.format(file="results/benchmarks/golden/"),
        "# What golden cells let pass and what they notice\n\n",
        "Golden cells ([guide](../guides/reproduce.md#how-results-stay-true-while-the-code-changes)) are small "
        "computations whose results are compared at every commit. They may differ from their kept values by "
        f"{rounding['relative']:g} of each. Computed as other processors round:\n\n",
        "| way | largest difference, share of what is tolerated | where | seconds |\n| --- | --- | --- | --- |\n",
    ]
    for way, measured in rounding["ways"].items():
        where = measured["value"].replace("|", "\\|")  # a bar would begin another column
        parts.append(f"| `{way}` | {measured['share_of_tolerance']:.3f} | {where} | {measured['seconds']:.0f} |\n")
    parts.append("\nOne change at a time in a copy of the repository, then `pytest -m golden` there:\n\n")
    parts.append(
        "| change | wanted | found | first red cell, or verdicts | seconds |\n| --- | --- | --- | --- | --- |\n"
    )
    for one in mutants["mutants"]:
        first = one["first"] or one.get("verdicts", "")
        parts.append(f"| {one['mutant']} | {one['wanted']} | {one['found']} | {first} | {one['seconds']:.0f} |\n")
    where = f"at commit `{(mutants['commit'] or '')[:12]}` (torch {mutants['torch']}, {mutants['processor']})"
    parts.append(
        f"\nMeasured {where} by\n\n"
        "```sh\npython benchmarks/golden.py rounding\npython benchmarks/golden.py mutants\n```\n"
    )
    return "".join(parts)


def _index(everything: Sequence[tuple[Experiment, Results]], others: Sequence[str]) -> str:
    """Document by document what is claimed and how it stands, why claims fail, and where the pages are."""
    parts = [
        "<!-- Written by docs/generate.py; don't edit. -->\n\n# Results\n\n",
        "What holdfast measured of each paper, beside the paper's own numbers: read it before you rely on a method. "
        "Pages are made by `holdfast reproduce` ([guide](../guides/reproduce.md)) and by the scripts in "
        "`benchmarks/`.\n\n"
        "- A **document** is one of the papers, or the dissertation, that are reproduced; *ours* is holdfast's.\n"
        "- A **claim** is a sentence of a document, or one of ours about its method, as code over stored values. One "
        "that our numbers can't decide is not judged, and its page says why.\n"
        "- The scale `cpu` is what two cores can compute; `paper` is the document's own.\n"
        "- A **bed** is a small stand-in for a document's setting: a data set with a known problem, and a network that "
        "a CPU can train. Where a reason below is *our bed*, the claim may hold at the document's size.\n\n",
        "| document | measured | claims hold | fail | not judged |\n| --- | --- | --- | --- | --- |\n",
    ]
    totals = [0, 0, 0, 0]
    for paper in PAPERS:
        own = [measured for experiment, measured in everything if experiment.paper == paper]
        counts = [sum(one.count(word) for one in own) for word in ("holds", "fails", "not judged")]
        totals = [before + now for before, now in zip(totals, [len(own), *counts], strict=True)]
        parts.append(f"| {paper} | {len(own)} | " + " | ".join(map(str, counts)) + " |\n")
    parts.append("| all | " + " | ".join(map(str, totals)) + " |\n\n## Claims that fail\n\n")
    parts.append("| experiment | claim | why |\n| --- | --- | --- |\n")
    for experiment, measured in everything:
        name = f"{experiment.name}.{measured.scale}"
        why = {claim.name: claim.why for claim in experiment.claims}
        for claim in measured.claims:
            if claim.verdict == "fails":
                reason = (why.get(claim.name) or "unknown").removesuffix(".")
                parts.append(f"| [{name}]({name}.md) | {claim.name} | {reason[0].upper()}{reason[1:]}. |\n")
    parts.append(_inventory(everything))
    parts.append("\n## Pages\n\n")
    for experiment, measured in everything:
        name = f"{experiment.name}.{measured.scale}"
        parts.append(f"- [{name}]({name}.md): {experiment.title}\n")
    parts += [f"- [{page.removesuffix('.md')}]({page})\n" for page in others]
    return "".join(parts)


def _declared(name: str) -> str:
    """What is said of an experiment without results of ours."""
    return "declared, not run yet" if "cpu" in find(name).scales else "declared for `paper` only"


def _inventory(everything: Sequence[tuple[Experiment, Results]]) -> str:
    """A row per table and figure of the documents: measured, declared for the paper's scale only, or why not."""
    measured = {(experiment.name, results.scale): results for experiment, results in everything}
    parts = [
        "\n## Tables and figures of the documents\n\n",
        "Claims are those of the experiments named, which may answer several rows; a row that is declared for the "
        "scale `paper` only needs data or weights that could not be fetched here.\n",
    ]
    for document, items in DOCUMENTS.items():
        parts.append(f"\n### {document}\n\n| item | shows | ours | claims hold / fail / not judged |\n")
        parts.append("| --- | --- | --- | --- |\n")
        for item in items:
            own = {name: measured[name, "cpu"] for name in item.experiments if (name, "cpu") in measured}
            links = [f"[{name}]({name}.cpu.md)" for name in own]
            links += [f"`{name}`, {_declared(name)}" for name in item.experiments if name not in own]
            counts = [sum(one.count(word) for one in own.values()) for word in ("holds", "fails", "not judged")]
            claims = " / ".join(map(str, counts)) if own else ""
            parts.append(f"| {item.name} | {item.shows} | {', '.join(links) or item.why_not} | {claims} |\n")
    return "".join(parts)


def main() -> None:
    """Write the pages that differ and say which."""
    for page, text in pages().items():
        if not page.exists() or page.read_text() != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
            sys.stdout.write(f"wrote {page.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
