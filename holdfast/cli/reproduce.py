"""``holdfast reproduce``: run a paper's table, ours beside theirs, and see which of its claims hold."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from holdfast.errors import ConfigError, DataError

if TYPE_CHECKING:
    from holdfast.papers.execute import Outcome
    from holdfast.papers.experiment import Experiment
    from holdfast.papers.results import Judgement, Results

FAILED = 1
STOPPED = 130

_ROOMY = 120  # columns of a terminal that has room for titles
_WIDEST = 1000  # columns of a table; where a terminal has fewer its lines run on, and no number is cut


def reproduce(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = None,
    *,
    scale: Literal["smoke", "cpu", "paper"] = "cpu",
    seeds: Annotated[str | None, tyro.conf.arg(metavar="0,1,2")] = None,
    jobs: int | None = None,
    fresh: bool = False,
    confirm: int | None = None,
    list: bool = False,
    data_root: Path | None = None,
    results_dir: Path | None = None,
) -> int:
    """Reproduce a table or figure of a paper: ours beside the printed numbers, and a verdict on every claim.

    A run that was stopped continues where it was.

    Args:
        name: the experiment, such as spare/table5.1; all are listed without it.
        scale: smoke takes seconds, cpu minutes on two cores, paper is the document's own setting.
        seeds: seeds separated by commas; the experiment's own by default.
        jobs: processes at a time; one per core by default.
        fresh: compute everything anew, also what is known from earlier runs.
        confirm: instead of all cells compute so many, drawn by lot; if they agree to the last bit with results that a
            change of the code made stale, these are taken for today's.
        list: list the experiments, how many claims hold, and which results are stale.
        data_root: folder of the data sets; HOLDFAST_DATA by default.
        results_dir: where results lie; results/ of the checkout, or of this folder outside a checkout, by default.

    Returns:
        The exit code: 0 if everything ran, whatever the verdicts; 1 if a cell failed; 130 if it was stopped.
    """
    from holdfast.papers import reproduce as papers
    from holdfast.papers.catalog import find
    from holdfast.papers.results import results_file

    console = Console()
    folder = results_dir or default_results_dir()
    if list or name is None:
        console.print(_listing(folder, console.width >= _ROOMY))
        return 0
    experiment = find(name)
    if confirm is not None:
        file = results_file(folder, experiment.name, scale)
        return _confirm(console, experiment, file, confirm, jobs=jobs, data_root=data_root)
    chosen = experiment.default_seeds(scale) if seeds is None else parse_seeds(seeds)
    total = sum(len(cell.seeds_of(chosen)) for cell in experiment.cells_at(scale))
    try:
        with _progress(console, f"{experiment.name} at {scale}", total) as listener:
            results = papers.reproduce(
                experiment, scale, chosen, jobs=jobs, fresh=fresh, data_root=data_root, listener=listener
            )
    except KeyboardInterrupt:
        console.print("Stopped. What was finished is kept; the same command continues.")
        return STOPPED
    _show(console, experiment, results)
    _write(console, experiment, results, folder)
    return 0 if results.complete else FAILED


def main(arguments: list[str]) -> int:
    """Run the command."""
    return tyro.cli(reproduce, args=arguments, prog="holdfast reproduce", config=(tyro.conf.FlagCreatePairsOff,))


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of ``"0,1,2"``.

    Raises:
        ConfigError: if it isn't whole numbers separated by commas.
    """
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        raise ConfigError(f"the seeds are {text!r}; give whole numbers separated by commas, such as 0,1,2")
    return tuple(int(part) for part in text.split(","))


def default_results_dir() -> Path:
    """``results`` of the checkout of holdfast that the current folder is in, else of the current folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = folder / "pyproject.toml"
        if project.is_file() and re.search(r'^name = "holdfast"$', project.read_text(), re.MULTILINE):
            return folder / "results"
    return here / "results"


# ---------------------------------------------------------------------------------------------------------- running


class _TimeLeft(ProgressColumn):
    """Time left, from how fast cells were computed in this run; cells found in the cache say nothing about it."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        computed, done_at = task.fields["computed"], task.fields["done_at"]
        if not computed or task.remaining is None:
            return Text("time left -:--:--", style="progress.remaining")
        each = (done_at - task.fields["started"]) / computed
        left = max(0, round(each * task.remaining - (time.monotonic() - done_at)))
        return Text(f"time left {left // 3600}:{left // 60 % 60:02}:{left % 60:02}", style="progress.remaining")


@contextmanager
def _progress(console: Console, title: str, total: int) -> Iterator[_Bar]:
    shape = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _TimeLeft())
    with Progress(*shape, console=console, transient=True) as progress:
        yield _Bar(progress, title, total)


class _Bar:
    """Counts outcomes on a progress bar and prints those that failed."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        now = time.monotonic()
        self.progress = progress
        self.computed = 0
        self.task = progress.add_task(escape(title), total=total, computed=0, started=now, done_at=now)

    def __call__(self, outcome: Outcome) -> None:
        self.computed += not outcome.cached
        self.progress.update(self.task, advance=1, computed=self.computed, done_at=time.monotonic())
        if outcome.error is not None:
            where = escape(f"{outcome.cell}, seed {outcome.seed}")
            self.progress.console.print(f"[red]failed[/] {where}: {escape(outcome.error)}")


def _confirm(
    console: Console, experiment: Experiment, file: Path, count: int, *, jobs: int | None, data_root: Path | None
) -> int:
    from holdfast.papers.confirm import confirm
    from holdfast.papers.results import read_results, write_results

    results = read_results(file)
    with _progress(console, f"{experiment.name} at {results.scale}", count) as listener:
        found, differences = confirm(experiment, results, count, jobs=jobs, data_root=data_root, listener=listener)
    for one in differences:
        said = escape(f"{one.cell}, {one.metric}: {one.before!r} then, {one.now!r} now")
        console.print(f"[red]differs[/] {said}", highlight=False)
    if differences:
        console.print("The results are no longer those of this code; run the experiment again.")
        return FAILED
    write_results(found, file.parents[1])
    last = found.confirmed[-1]
    cells = escape(", ".join(last.cells))
    console.print(f"Confirmed under seed {last.seed} by {cells}.", highlight=False)
    return 0


# ---------------------------------------------------------------------------------------------------------- showing


def _show(console: Console, experiment: Experiment, results: Results) -> None:
    from holdfast.papers import render

    title = f"{experiment.name} at scale {results.scale}: {experiment.source}"
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    first, *others = render.heading(experiment, results)
    body = render.rows(experiment, results)
    table.add_column(first, no_wrap=True)
    for place, label in enumerate(others, start=1):
        needed = max([len(row[place]) for row in body] + [len(word) for word in label.split()], default=1)
        head = "\n".join(textwrap.wrap(label, needed))
        table.add_column(escape(head), justify="right", no_wrap=True, style="dim" if label == "printed" else None)
    before = ""
    for row in body:
        section, grouped, _ = row[0].partition("/")
        if before and grouped and section != before:
            table.add_section()
        table.add_row(*(escape(entry) for entry in row))
        before = section
    natural = Measurement.get(console, console.options.update(width=_WIDEST), table).maximum
    Console(width=max(console.width, natural)).print(table)
    verdicts = Table("verdict", "claim", "evidence", box=box.SIMPLE_HEAD)
    for claim in results.claims:
        verdicts.add_row(_mark(claim), escape(claim.name), escape(claim.evidence))
    if results.claims:
        console.print(verdicts)


def _mark(claim: Judgement) -> str:
    from holdfast.papers.render import verdict

    style = {True: "green", False: "red", None: "dim"}[claim.holds]
    return f"[{style}]{verdict(claim)}[/]"


def _write(console: Console, experiment: Experiment, results: Results, folder: Path) -> None:
    """Write the results file and its figure, unless an incomplete run would take the place of a complete one."""
    from holdfast.papers.results import results_file, write_figure, write_results

    file = results_file(folder, results.experiment, results.scale)
    if not results.complete and (kept := _read(file)) is not None and kept.complete:
        console.print(f"Incomplete, so the complete results of {kept.date[:10]} in {file} are kept.", highlight=False)
        return
    write_results(results, folder)
    state = "" if results.complete else ", marked as incomplete"
    console.print(f"Results are in {file}{state}; `make docs` regenerates the pages that show them.", highlight=False)
    if (figure := write_figure(experiment, results, folder)) is not None:
        console.print(f"The figure is drawn in {figure}.", highlight=False)


def _read(file: Path) -> Results | None:
    from holdfast.papers.results import read_results

    try:
        return read_results(file) if file.exists() else None
    except DataError:
        return None


def _listing(folder: Path, roomy: bool) -> Table:
    """The experiments; dates and titles are left out where they would push everything else together."""
    from holdfast.papers.catalog import EXPERIMENTS
    from holdfast.papers.results import results_file

    columns = [Column(name, no_wrap=True) for name in ("experiment", "scale", "claims")] + [Column("state")]
    if roomy:
        columns += [Column("date", no_wrap=True), Column("what")]
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for experiment in EXPERIMENTS.values():
        for number, scale in enumerate(experiment.scales):
            name, title = (experiment.name, experiment.title) if number == 0 else ("", "")
            claims, date, state = _standing(experiment, results_file(folder, experiment.name, scale))
            table.add_row(name, scale, claims, state, *([date, title] if roomy else []))
    return table


def _standing(experiment: Experiment, file: Path) -> tuple[str, str, str]:
    """How many claims hold, since when, and whether the results can be trusted today."""
    from holdfast.papers.results import stale

    results = _read(file)
    if results is None:
        return "", "", "[red]unreadable[/]" if file.exists() else "[dim]not run[/]"
    checked = sum(claim.holds is not None for claim in results.claims)
    reason = stale(experiment, results)
    confirmed = f", confirmed {results.confirmed[-1].date[:10]}" if results.confirmed else ""
    states = ["incomplete"] * (not results.complete) + ([f"stale: {reason}"] if reason else [])
    state = f"[yellow]{escape(', '.join(states))}[/]" if states else f"[green]up to date{confirmed}[/]"
    return f"{results.held}/{checked} hold", results.date[:10], state
