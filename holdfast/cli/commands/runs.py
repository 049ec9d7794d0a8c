"""`holdfast runs`: what has been run, and how runs compare."""

from __future__ import annotations

from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast import training
from holdfast.cli.common.runs import refuse_selection
from holdfast.errors import ConfigError, HoldfastError, counted
from holdfast.report.html.markup import number

#: Damaged runs of which it is said what is wrong.
_DAMAGED_TOLD = 5


def list_(folder: tyro.conf.Positional[Path] = Path("runs")) -> None:
    """List the runs and selections below a folder, newest first.

    Args:
        folder: where to look.
    """
    marks = ("config.yaml", "environment.json")
    places = {file.parent for mark in marks for file in folder.rglob(mark)}
    if not places:
        raise ConfigError(
            f"there are no runs below {folder}; `holdfast fit`, `holdfast federate` and `holdfast select` make some"
        )
    table = Table(box=None, header_style="bold")
    for column in ("run", "started", "status", "data", "method", "worst", "done"):
        table.add_column(column, overflow="fold" if column == "run" else "ellipsis")
    rows, damaged = [], []
    for place in sorted(places):
        try:
            rows.append(_row(place))
        except HoldfastError as error:
            damaged.append((escape(str(place)), "", "[red]damaged[/]"))
            _print_damage(error, len(damaged))
    for row in (*sorted(rows, key=lambda row: row[1], reverse=True), *damaged):
        table.add_row(*row)
    Console().print(table)


def _print_damage(error: HoldfastError, number: int) -> None:
    """Why a run can't be listed; of very many, the first."""
    if number <= _DAMAGED_TOLD:
        Console(stderr=True, soft_wrap=True).print(f"[yellow]damaged:[/] {escape(str(error))}", highlight=False)


def _row(place: Path) -> tuple[str, ...]:
    """The cells of a run: where, when, how far, on what, by what.

    Raises:
        HoldfastError: if its files can't be made sense of.
    """
    from holdfast.training.run import understanding  # brings torch, which `--help` needn't

    run = training.Run.open(place)
    with understanding(place):
        cells = (str(place), str(run.environment["started"]), run.status, str(run.config.get("data", "")))
        return tuple(escape(cell) for cell in (*cells, *_CELLS[run.kind](run)))


def compare(runs: tyro.conf.Positional[tuple[Path, ...]], page: Path | None = None) -> None:
    """Show runs side by side; differences to the first one come with intervals where the test sets agree.

    Args:
        runs: two or more run directories, of `fit` or of `federate`.
        page: also write this HTML page: curves and groups side by side, or federations in the plane of robustness and
            fairness.
    """
    if len(runs) < 2:
        raise ConfigError("give two or more run directories to compare")
    opened = [training.Run.open(path) for path in runs]
    for run in opened:
        refuse_selection(run)
    federated = [run.kind == "federation" for run in opened]
    if not any(federated):
        _compare_fits(opened, page)
        return
    if not all(federated):
        other = opened[federated.index(False)].path
        raise ConfigError(f"{other} is a run of fit and others are federations; compare runs of one kind")
    _compare_federations(opened, page)


def _compare_fits(runs: list[training.Run], page: Path | None) -> None:
    from holdfast.report import comparison, comparison_table

    console = Console()
    console.print(comparison_table(comparison(runs)))
    if page is not None:
        from holdfast.report.pages.comparison_page import write_run_comparison

        console.print(f"Page: [bold]{write_run_comparison(runs, page)}[/]", highlight=False, soft_wrap=True)


def _compare_federations(runs: list[training.Run], page: Path | None) -> None:
    from holdfast.report.pages.federation.comparison import federation_table
    from holdfast.report.pages.federation.page import write_comparison
    from holdfast.report.pages.federation.record import FederationRecord

    records, console = [FederationRecord.of(run) for run in runs], Console()
    console.print(federation_table(records))
    if page is not None:
        console.print(f"Page: [bold]{write_comparison(records, page)}[/]", highlight=False, soft_wrap=True)


def _fit(run: training.Run) -> tuple[str, str, str]:
    """Method, worst group, epochs."""
    worst = f"{100 * run.results['test']['worst_accuracy']:.1f}% group" if run.results else ""
    done = sum(record["event"] == "epoch" for record in run.metrics())
    return str(run.config.get("method", "")), worst, counted(done, "epoch")


def _selection(run: training.Run) -> tuple[str, str, str]:
    """Method, nothing, how many were chosen; a selection has no groups to do badly on."""
    results = run.results
    done = f"{number(results['chosen'])} of {number(results['examples'])} chosen" if results else ""
    return str(run.config.get("method", "s2l")), "", done


def _federation(run: training.Run) -> tuple[str, str, str]:
    """Methods, worst tenth of clients, rounds."""
    from holdfast.report.pages.federation.record import FederationRecord

    record = FederationRecord.of(run)
    method = ", ".join(record.settings("objective", "aggregate", "attack", "personalize"))
    worst = f"{100 * record.models[record.headline]['worst_tenth']:.1f}% tenth" if record.finished else ""
    return method, worst, counted(record.done, "round")


#: The last cells of a run's row in the list: method, worst, how much is done.
_CELLS = {"fit": _fit, "clip": _fit, "federation": _federation, "selection": _selection}


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.extras.subcommand_cli_from_dict({"list": list_, "compare": compare}, args=arguments, prog="holdfast runs")
    return 0
