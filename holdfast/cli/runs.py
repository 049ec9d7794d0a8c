"""`holdfast runs`: what has been run, and how runs compare."""

from __future__ import annotations

from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from holdfast.errors import ConfigError
from holdfast.report.compare import comparison, comparison_table
from holdfast.training import Run


def list_(folder: tyro.conf.Positional[Path] = Path("runs")) -> None:
    """List the runs below a folder, newest first.

    Args:
        folder: where to look.
    """
    runs = [Run.open(file.parent) for file in folder.rglob("config.yaml")]
    if not runs:
        raise ConfigError(f"there are no runs below {folder}; `holdfast fit` makes one")
    table = Table(box=None, header_style="bold")
    for column in ("run", "started", "status", "data", "method", "worst group", "epochs"):
        table.add_column(column)
    for run in sorted(runs, key=lambda run: str(run.environment["started"]), reverse=True):
        results = run.results
        worst = f"{100 * results['test']['worst_accuracy']:.1f}%" if results else ""
        done = sum(record["event"] == "epoch" for record in run.metrics())
        config = run.config
        table.add_row(
            str(run.path),
            run.environment["started"],
            run.status,
            str(config.get("data", "")),
            str(config.get("method", "")),
            worst,
            str(done),
        )
    Console().print(table)


def compare(runs: tyro.conf.Positional[tuple[Path, ...]]) -> None:
    """Show runs side by side; differences to the first one come with intervals where the test sets agree.

    Args:
        runs: two or more run directories.
    """
    if len(runs) < 2:
        raise ConfigError("give two or more run directories to compare")
    Console().print(comparison_table(comparison([Run.open(path) for path in runs])))


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.extras.subcommand_cli_from_dict({"list": list_, "compare": compare}, args=arguments, prog="holdfast runs")
    return 0
