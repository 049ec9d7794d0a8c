"""`holdfast report`: write a run's page again, for instance of a run that is still going on."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

import holdfast
from holdfast.cli.common.runs import refuse_selection
from holdfast.data.catalog import data_root
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.data import Splits
    from holdfast.training import Run


def report(
    run: tyro.conf.Positional[Path],
    show: Annotated[bool, tyro.conf.arg(name="open")] = False,
    data_root: Path | None = None,
) -> None:
    """Write RUN/report.html from what is in the run directory.

    Args:
        run: the run directory.
        show: open it in the browser.
        data_root: where data sets live, for the sheet of examples; without the data the page says so.
    """
    opened = holdfast.training.Run.open(run)
    refuse_selection(opened)
    page = holdfast.report.write_report(opened, _splits(opened, data_root))
    Console().print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
    if show:
        webbrowser.open(page.resolve().as_uri())


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.cli(report, args=arguments, prog="holdfast report")
    return 0


def _splits(run: Run, root: Path | None) -> Splits | None:
    """The data of the run, for its sheet of examples, if they can be read; a federation's page shows none."""
    config = ["--config", str(run.path / "config.yaml")]
    if run.kind == "federation":
        return None
    try:
        if run.kind == "clip":
            from holdfast.cli.commands.fit_clip import clip_splits

            return clip_splits(config, root)
        from holdfast.cli.common.options import parse

        options = parse(config)
        return options.data.load(data_root(root or options.choices.data_root))
    except HoldfastError as error:
        logging.getLogger(__name__).warning("the examples can't be shown: %s", error)
        return None
