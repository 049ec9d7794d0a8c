"""`holdfast report`: write a run's page again, for instance of a run that is still going on."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path

import tyro
from rich.console import Console

from holdfast.cli.commands.fit import task_of
from holdfast.cli.commands.fit_clip import clip_splits
from holdfast.cli.commands.select_options import refuse_selection
from holdfast.cli.common.options import parse
from holdfast.data import Splits, data_root
from holdfast.errors import HoldfastError
from holdfast.federated.run_files import is_federation
from holdfast.report import write_report
from holdfast.training import Run


def report(run: tyro.conf.Positional[Path], open_: bool = False, data_root: Path | None = None) -> None:
    """Write RUN/report.html from what is in the run directory.

    Args:
        run: the run directory.
        open_: show it in the browser.
        data_root: where data sets live, for the sheet of examples; without the data the page says so.
    """
    found = Run.open(run)
    refuse_selection(found)
    page = write_report(found, None if is_federation(found) else _splits(found, data_root))
    Console().print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
    if open_:
        webbrowser.open(page.resolve().as_uri())


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.cli(report, args=arguments, prog="holdfast report")
    return 0


def _splits(run: Run, root: Path | None) -> Splits | None:
    config = ["--config", str(run.path / "config.yaml")]
    try:
        if task_of(config) == "clip":
            return clip_splits(config, root)
        options = parse(config)
        return options.data.load(data_root(root or options.choices.data_root))
    except HoldfastError as error:
        logging.getLogger(__name__).warning("the examples can't be shown: %s", error)
        return None
