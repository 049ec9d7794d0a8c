"""``holdfast reproduce``: run a paper's table, ours beside theirs, and see which of its claims hold."""

from __future__ import annotations

import re
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

from holdfast.cli.common.cell_progress import cell_progress
from holdfast.errors import EXIT_CODE, ConfigError, Interrupted
from holdfast.papers.engine.experiment import SCALES, Scale
from holdfast.training.interruption import interruptible

if TYPE_CHECKING:
    from holdfast.papers.engine.experiment import Experiment
    from holdfast.papers.engine.recheck import RecheckOutcome
    from holdfast.papers.engine.results import Judgement, Results

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
    judge: bool = False,
    recheck: bool = False,
    minutes: float = 30.0,
    golden: bool = False,
    estimate: bool = False,
    list: bool = False,
    data_root: Path | None = None,
    results_dir: Path | None = None,
) -> int:
    """Reproduce a table or figure of a paper: ours beside the printed numbers, and a verdict on every claim.

    A run that was stopped continues where it was.

    Args:
        name: the experiment, such as spare/table5.1, or a paper, such as spare, for all of its experiments that have
            the scale; all are listed without it. With --judge, --recheck and --golden all papers without it.
        scale: smoke takes seconds, cpu minutes on two cores, paper is the document's own setting.
        seeds: seeds separated by commas; the experiment's own by default.
        jobs: processes at a time; one per core by default.
        fresh: compute everything anew, also what is known from earlier runs.
        judge: compute nothing; judge the claims anew from the stored values, after a claim changed.
        recheck: compute stored cells again, those first that were looked at longest ago, and record how far they are.
        minutes: how long --recheck goes on; the last cell is not begun if it would take longer.
        golden: compute the golden cells and compare; new ones, and those whose version was raised, are recorded.
        estimate: compute nothing; say which files, how many cells, hours and how much memory a paper's scale needs.
        list: list the experiments: what was measured, when, at which commit and version, and how many claims hold,
            fail and are not judged.
        data_root: folder of the data sets; HOLDFAST_DATA by default.
        results_dir: where results lie; results/ of the checkout, or of this folder outside a checkout, by default.

    Returns:
        The exit code: 0 if everything ran, whatever the verdicts; 1 if a cell failed or differs; 130 if it was stopped,
        75 if SIGTERM or SIGUSR1 stopped it.
    """
    if sum((judge, recheck, golden, estimate, list)) > 1:
        raise ConfigError("--judge, --recheck, --golden, --estimate and --list do different things; give one of them")
    console = Console()
    folder = results_dir or default_results_dir()
    try:
        with interruptible(at_once=True):
            if judge:
                return _judge(console, folder, name)
            if golden:
                return _golden(console, folder, name)
            if recheck:
                return _recheck(console, folder, name, minutes, data_root)
            if estimate or list or name is None:
                return _tell(console, folder, name, scale, data_root, estimate=estimate)
            codes = [
                _run(console, folder, each, scale, seeds, jobs=jobs, fresh=fresh, data_root=data_root)
                for each in experiments_to_run(name, scale)
            ]
            return max(codes)
    except (KeyboardInterrupt, Interrupted) as stop:
        console.print("Stopped. What was finished is kept; the same command continues.")
        return EXIT_CODE if isinstance(stop, Interrupted) else STOPPED


def main(arguments: list[str]) -> int:
    """Run the command."""
    return tyro.cli(reproduce, args=arguments, prog="holdfast reproduce", config=(tyro.conf.FlagCreatePairsOff,))


def experiments_to_run(name: str, scale: Scale) -> list[str]:
    """The experiment of this name, or all of a document's that have the scale.

    Raises:
        ConfigError: if no experiment of the document has it.
    """
    from holdfast.papers.engine.catalog import PAPERS, experiments_of

    if name not in PAPERS:
        return [name]
    named = [experiment.name for experiment in experiments_of(name) if scale in experiment.scales]
    if not named:
        raise ConfigError(f"no experiment of {name} has the scale {scale}; `holdfast reproduce --list` shows which do")
    return named


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


def _run(
    console: Console,
    folder: Path,
    name: str,
    scale: Scale,
    seeds: str | None,
    *,
    jobs: int | None,
    fresh: bool,
    data_root: Path | None,
) -> int:
    from holdfast.papers.engine.catalog import experiments_of, find
    from holdfast.papers.engine.reproduce import reproduce as compute
    from holdfast.papers.engine.store import Store, results_file

    experiment = find(name)
    chosen = experiment.default_seeds(scale) if seeds is None else parse_seeds(seeds)
    total = sum(len(cell.seeds_of(chosen)) for cell in experiment.cells_at(scale))
    store = Store(folder, experiments_of(experiment.paper), scale)
    with cell_progress(console, f"{experiment.name} at {scale}", total) as listener:
        results = compute(experiment, store, chosen, jobs=jobs, fresh=fresh, data_root=data_root, listener=listener)
    _show(console, experiment, results)
    store.write()
    file = results_file(folder, experiment.name, scale)
    state = ", marked as incomplete" if results.failed else ""
    console.print(f"Results are in {file}{state}; `make docs` regenerates the pages that show them.", highlight=False)
    return FAILED if results.failed else 0


# --------------------------------------------------------------------------------- judging, rechecking, golden cells


def _papers(name: str | None) -> list[str]:
    """The documents that a name stands for: one, that of an experiment, or all."""
    from holdfast.papers.engine.catalog import PAPERS, experiments_of, find

    if name is None:
        return [*PAPERS]
    if "/" not in name:
        experiments_of(name)  # refuses a document that there is not
        return [name]
    return [find(name).paper]


def _judge(console: Console, folder: Path, name: str | None) -> int:
    from holdfast.papers.engine.catalog import experiments_of
    from holdfast.papers.engine.experiment import SCALES
    from holdfast.papers.engine.store import Store

    total: Counter[str] = Counter()
    for paper in _papers(name):
        for scale in SCALES:
            store = Store(folder, experiments_of(paper), scale)
            before = {name: record.claims for name, record in store.records.items()}
            store.judge()
            for experiment, record in store.records.items():
                total.update(claim.verdict for claim in record.claims)
                _print_changes(console, f"{experiment}.{scale}", before.get(experiment, ()), record.claims)
            store.write()
    counts = ", ".join(f"{total[word]} {word}" for word in ("holds", "fails", "not judged"))
    console.print(f"{sum(total.values())} claims judged from stored values: {counts}.", highlight=False)
    return 0


def _print_changes(console: Console, where: str, before: Sequence[Judgement], now: Sequence[Judgement]) -> None:
    known = {claim.name: claim.verdict for claim in before}
    for claim in now:
        if known.get(claim.name) != claim.verdict:
            was = known.get(claim.name, "new")
            console.print(escape(f"{where}: {claim.name}: {was} -> {claim.verdict}"), highlight=False)


def _recheck(console: Console, folder: Path, name: str | None, minutes: float, data_root: Path | None) -> int:
    from holdfast.papers.engine.catalog import experiments_of
    from holdfast.papers.engine.recheck import candidates, recheck

    if not minutes > 0:
        raise ConfigError(f"minutes is {minutes:g}; give more than 0")
    ends = time.monotonic() + 60 * minutes
    waiting = candidates(folder, [experiments_of(paper) for paper in _papers(name)])
    done, alarms, rounded = 0, 0, 0
    while waiting:
        left = ends - time.monotonic()
        chosen = next((each for each in waiting if each.entry.seconds <= left), None)
        if chosen is None:
            break
        waiting.remove(chosen)
        for outcome in recheck([chosen], data_root=data_root):
            console.print(_recheck_line(outcome), highlight=False)
            done, alarms = done + 1, alarms + outcome.alarming
            rounded += not outcome.alarming and outcome.check is not None and outcome.check.farthest > 0
    elsewhere = f", {rounded} differ from another processor's" if rounded else ""
    console.print(
        f"{done} cells computed again, {alarms} differ or failed{elsewhere}; {len(waiting)} wait for the next time."
    )
    return FAILED if alarms else 0


def _recheck_line(outcome: RecheckOutcome) -> str:
    """What came out of a recheck of a cell, in a line."""
    where = escape(f"{outcome.candidate.cell.name}, seed {outcome.candidate.seed}")
    if outcome.check is None:
        return f"[red]failed[/] {where}: {escape(outcome.error or '')}"
    if not outcome.check.farthest:
        return f"[green]same[/] {where}"
    how = escape(f"{outcome.check.metric} by {outcome.check.farthest:.2g} of its size")
    if outcome.elsewhere:
        return f"[yellow]differs[/] {where}: {how}; it was measured on another processor, whose rounding may explain it"
    return f"[red]differs[/] {where}: {how}"


def _golden(console: Console, folder: Path, name: str | None) -> int:
    from holdfast.papers.engine.catalog import experiments_of
    from holdfast.papers.engine.golden import compute, golden_cells, record

    failed = False
    for paper in _papers(name):
        cells = golden_cells(experiments_of(paper))
        now = {}
        for label, cell in cells.items():
            began = time.monotonic()
            now[label] = compute(cell)
            console.print(escape(f"{paper}: {label}: {time.monotonic() - began:.1f} s"), highlight=False)
        for line in record(folder, paper, cells, now):
            failed = True
            console.print(f"[red]changed[/] {escape(line)}", highlight=False)
    return FAILED if failed else 0


# ---------------------------------------------------------------------------------------------------------- showing


def _tell(
    console: Console, folder: Path, name: str | None, scale: Scale, data_root: Path | None, *, estimate: bool
) -> int:
    """What a scale needs, or the list of experiments; neither computes anything."""
    if estimate:
        from holdfast.cli.common.needs import show_needs

        return show_needs(console, name, scale, data_root)
    console.print(_listing(folder, console.width >= _ROOMY))
    return 0


def _show(console: Console, experiment: Experiment, results: Results) -> None:
    from holdfast.papers.engine import render

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
    style = {"holds": "green", "fails": "red", "not judged": "dim"}[claim.verdict]
    return f"[{style}]{claim.verdict}[/]"


def _listing(folder: Path, roomy: bool) -> Table:
    """The experiments and how they stand; titles are left out where they would push everything else together."""
    from holdfast.papers.engine.catalog import PAPERS, experiments_of
    from holdfast.papers.engine.store import Store

    columns = [Column(head, no_wrap=True) for head in ("experiment", "scale", "claims")] + [Column("measured")]
    table = Table(*columns, *([Column("what")] if roomy else []), box=box.SIMPLE_HEAD, pad_edge=False)
    table.caption = "claims: how many hold / fail / are not judged; measured: day, commit, version of the cells"
    for paper in PAPERS:
        experiments = experiments_of(paper)
        stores = {scale: Store(folder, experiments, scale) for scale in SCALES}
        for experiment in experiments:
            for number, scale in enumerate(experiment.scales):
                name, title = (experiment.name, experiment.title) if number == 0 else ("", "")
                standing = _standing(stores[scale].results(experiment))
                table.add_row(name, scale, *standing, *([title] if roomy else []))
    return table


def _standing(results: Results | None) -> tuple[str, str]:
    """Counts of verdicts; the day, the commit and the version of the newest cells, and what is amiss with others."""
    if results is None:
        return "", "[dim]not run[/]"
    counts = "/".join(str(results.count(word)) for word in ("holds", "fails", "not judged"))
    last = results.origins[-1]
    versions = sorted({cell.version for cell in results.cells if cell.version is not None})
    missing = sum(cell.version is None for cell in results.cells)
    older = sum(cell.version not in (None, cell.wanted) for cell in results.cells)
    amiss = [f"{missing} cells not measured"] * bool(missing) + [f"{older} of an older version"] * bool(older)
    amiss += ["incomplete"] * results.failed
    commit = (last.get("commit") or "no commit")[:7]
    measured = f"{last['date'][:10]} {commit} v{','.join(map(str, versions))}"
    return counts, escape(measured) + (f" [yellow]{', '.join(amiss)}[/]" if amiss else "")
