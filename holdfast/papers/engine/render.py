"""Results as text: numbers as people print them, and a Markdown page made from a results file.

Pages are generated, never edited: the file is the source, and the page says which command makes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.experiment import Experiment, Grid, Printed
from holdfast.papers.engine.results import CellResult, Judgement, Measured, Results, VerdictWord

#: What one claim does, and what several do.
_VERBS: Mapping[VerdictWord, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "not judged": ("is not judged", "are not judged"),
}


def shown(number: Measured | Printed | None, digits: int = 1) -> str:
    """A number with its spread, such as ``82.2 ± 1.0``; a dash for none.

    Example:
        >>> shown(Printed(82.2, 1.0)), shown(Printed(0.0)), shown(None)
        ('82.2 ± 1.0', '0.0', '-')
    """
    if number is None:
        return "-"
    mean = f"{number.mean:.{digits}f}"
    return mean if number.spread is None else f"{mean} ± {number.spread:.{digits}f}"


def columns(experiment: Experiment, results: Results) -> dict[str, str]:
    """Heading by metric: the experiment's choice, or every metric there is under its own name."""
    measured = {metric: metric for cell in results.cells for metric in cell.metrics}
    return dict(experiment.columns) or measured


def heading(experiment: Experiment, results: Results) -> list[str]:
    """The table's head: the cell, ours for each of `columns`, with theirs where the document prints any, seconds.

    Of a grid: the row, then the columns that were computed.
    """
    if experiment.grid is not None:
        return ["", *(experiment.grid.columns[column] for column in _grid_columns(experiment.grid, results))]
    labels = ["cell"]
    for metric, label in columns(experiment, results).items():
        labels += [label, "printed"] if _is_printed(metric, experiment, results) else [label]
    return [*labels, "seconds"]


def rows(experiment: Experiment, results: Results) -> list[list[str]]:
    """The table's body, in the order of `heading`: the cells that have any of its columns."""
    if experiment.grid is not None:
        return _grid_rows(experiment, experiment.grid, results)
    metrics = {metric: _is_printed(metric, experiment, results) for metric in columns(experiment, results)}
    return [_row(cell, metrics, experiment) for cell in results.cells if cell.errors or metrics.keys() & cell.metrics]


def command(results: Results) -> str:
    """What to type to repeat the results."""
    seeds = ",".join(map(str, results.seeds))
    return f"holdfast reproduce {results.experiment} --scale {results.scale} --seeds {seeds}"


def markdown(results: Results, experiment: Experiment | None = None, *, picture: str | None = None) -> str:
    """A page about the results.

    Args:
        results: read from a results file.
        experiment: its declaration; looked up in the catalog where omitted.
        picture: where its figure is, seen from the page.

    Returns:
        Markdown with a title of the first level: ours beside theirs, verdicts, and how to repeat it.
    """
    declared = experiment or find(results.experiment)
    parts = [
        f"# {declared.name}: {declared.title}",
        f"{declared.source}, at scale `{results.scale}`. {_what_ours_are(declared, results)}"
        f"{', beside what the document prints' if declared.printed else ''}.{_more(declared, results)}",
        *([] if picture is None else [f"![{declared.title}]({picture})"]),
        _table(heading(declared, results), rows(declared, results)),
    ]
    if results.scale in declared.notes:
        parts.append(declared.notes[results.scale])
    parts += reservations(results)
    if results.claims:
        parts += [
            f"## Claims\n\n{tally(results)}",
            _table(["claim", "verdict", "evidence"], [_judged(declared, claim) for claim in results.claims]),
        ]
    if any(claim.ours for claim in declared.claims):
        parts.append("¹ The sentence or its threshold is ours, not the document's.")
    parts.append(f"## Repeat it\n\n```sh\n{command(results)}\n```\n\n{_origin(results)}")
    return "\n\n".join(parts) + "\n"


def tally(results: Results) -> str:
    """How many claims hold, fail and are not judged."""
    counts = [f"{number} {_VERBS[word][number != 1]}" for word in _VERBS for number in (results.count(word),)]
    return f"Of {_counted(len(results.claims), 'claim')}, " + ", ".join(counts[:2]) + f" and {counts[2]}."


def reservations(results: Results) -> list[str]:
    """What a reader must know of cells that are missing, older or failed, a paragraph each."""
    missing = [cell.name for cell in results.cells if cell.version is None]
    older = [cell for cell in results.cells if cell.version not in (None, cell.wanted)]
    failed = [
        f"- {cell.name}, seed {seed}: {_cut(error)}" for cell in results.cells for seed, error in cell.errors.items()
    ]
    sentences = []
    if missing:
        sentences.append(f"**Not measured yet:** {', '.join(missing)}.")
    if older:
        named = ", ".join(f"{cell.name} (version {cell.version}, today's is {cell.wanted})" for cell in older)
        sentences.append(f"**Measured with an older version:** {named}. No claim is judged by them.")
    if failed:
        sentences.append("**Incomplete.** These did not finish:\n\n" + "\n".join(failed))
    return sentences


def _judged(experiment: Experiment, claim: Judgement) -> list[str]:
    """A claim's line: its sentence, the verdict, the evidence, and why it fails where it does."""
    declared = next((each for each in experiment.claims if each.name == claim.name), None)
    mark = "¹" if declared is not None and declared.ours else ""
    why = f" *Why:* {declared.why}" if declared is not None and declared.why and claim.verdict == "fails" else ""
    return [f"{claim.name}{mark}", f"**{claim.verdict}**", f"{claim.evidence}.{why}" if why else claim.evidence]


def _what_ours_are(experiment: Experiment, results: Results) -> str:
    """The beginning of a sentence: what our entries are means of, and what stands behind ±."""
    if len(results.seeds) == 1:
        return f"Ours are of one seed ({results.seeds[0]})"
    seeds = ", ".join(map(str, results.seeds))
    return f"Ours are means over {len(results.seeds)} seeds ({seeds}), ± the {experiment.spread} standard deviation"


def seeds_in_words(results: Results) -> str:
    """How many seeds there are."""
    return _counted(len(results.seeds), "seed")


def fewer_seeds(results: Results) -> str:
    """A sentence where some cells have not all of them."""
    counts = {len(cell.seeds) for cell in results.cells if cell.seeds}
    fewer = sorted(count for count in counts if count < len(results.seeds))
    if not fewer:
        return ""
    if fewer == [1]:
        return " Some cells have the first seed only, and so no ±."
    return f" Some cells have the first {' or '.join(map(str, fewer))} seeds only."


def _more(experiment: Experiment, results: Results) -> str:
    remark = fewer_seeds(results)
    if experiment.grid is not None:
        remark += f" An entry is {experiment.grid.says}" + (
            "; printed ones in brackets." if experiment.printed else "."
        )
    return remark


def _grid_columns(grid: Grid, results: Results) -> list[str]:
    there = {name.partition("/")[0] for name in results.names}
    return [column for column in grid.columns if column in there]


def _grid_rows(experiment: Experiment, grid: Grid, results: Results) -> list[list[str]]:
    """Rows that have an entry, then the seconds of one seed of each column."""
    columns = _grid_columns(grid, results)
    body = [
        [label, *(_entry(experiment, grid, results, column, row) for column in columns)]
        for row, label in grid.rows.items()
    ]
    seconds = [sum(cell.seconds for cell in _of_column(results, column)) for column in columns]
    return [row for row in body if set(row[1:]) != {"-"}] + [["seconds", *(f"{each:.0f}" for each in seconds)]]


def _of_column(results: Results, column: str) -> list[CellResult]:
    return [cell for cell in results.cells if cell.name.partition("/")[0] == column]


def _entry(experiment: Experiment, grid: Grid, results: Results, column: str, row: str) -> str:
    """Ours and theirs, such as ``.911±.002/.08 (.909/.07)``."""
    names = f"{row}/{grid.mean}", f"{row}/{grid.spread}"
    ours, theirs = "", ""
    for cell in _of_column(results, column):
        if names[0] in cell.metrics:
            mean, spread = (cell.metrics[name].ours for name in names)
            over_seeds = "" if mean.spread is None else f"±{_brief(mean.spread, experiment.digits)}"
            ours = f"{_brief(mean.mean, experiment.digits)}{over_seeds}/{_brief(spread.mean, 2)}"
        printed = experiment.printed.get(cell.name, {})
        if names[0] in printed:
            ours = ours or ("failed" if cell.errors else "-")
            theirs = f" ({_brief(printed[names[0]].mean, experiment.digits)}"
            theirs += f"/{_brief(printed[names[1]].mean, 2)})" if names[1] in printed else ")"
    return f"{ours}{theirs}" or "-"


def _brief(value: float, digits: int) -> str:
    """Without the zero before the point, as tables of shares are printed."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def _is_printed(metric: str, experiment: Experiment, results: Results) -> bool:
    """Whether the document prints the metric for any cell that was computed."""
    return any(metric in experiment.printed.get(cell.name, {}) for cell in results.cells)


def _row(cell: CellResult, metrics: Mapping[str, bool], experiment: Experiment) -> list[str]:
    row = [cell.name]
    for name, is_printed in metrics.items():
        metric = cell.metrics.get(name)
        printed = experiment.printed.get(cell.name, {}).get(name) if metric is None else metric.printed
        ours = shown(None if metric is None else metric.ours, experiment.digits)
        row.append("failed" if cell.errors and metric is None else ours)
        if is_printed:
            row.append(shown(printed, experiment.digits))
    return [*row, f"{cell.seconds:.0f}" if cell.metrics else "-"]


def _origin(results: Results) -> str:
    """Every commit and day that cells come from, with the packages and the machine of the last."""
    if not results.origins:
        return "Nothing was measured yet."
    runs = [f"{_commit(origin)} on {origin['date'][:10]}" for origin in results.origins]
    last = results.origins[-1]
    machine = [f"torch {last.get('torch', '?')}", f"{last.get('cpus', '?')} cores"]
    if last.get("processor"):
        machine.append(str(last["processor"]))
    sentence = (
        f"Measured {'; '.join(dict.fromkeys(runs))} ({', '.join(machine)}). Seconds are of one seed on one thread."
    )
    return sentence if results.scale == "smoke" else f"{sentence} Versions of the cells: {_versions(results)}."


def _commit(origin: Mapping[str, Any]) -> str:
    where = "outside a repository" if origin.get("commit") is None else f"at commit `{origin['commit'][:12]}`"
    return where + (" with uncommitted changes" if origin.get("uncommitted_changes") else "")


def _versions(results: Results) -> str:
    versions = sorted({cell.version for cell in results.cells if cell.version is not None})
    return ", ".join(map(str, versions)) or "none"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cut(text: str) -> str:
    return text.splitlines()[0] if text else text
