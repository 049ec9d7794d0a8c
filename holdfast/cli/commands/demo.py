"""`holdfast demo`: plain training fails on some groups, group balancing repairs it; a minute, no download."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from holdfast import training


def demo(out: Path = Path("runs/demo"), seed: int = 0) -> None:
    """Train on coloured digits twice, plainly and balanced, and compare the groups.

    In the training set nearly every digit from 0 to 4 is red and every other one green; in the test set colours are
    random. A model that looks at the colour is right about most of the training set and wrong about the groups that
    have the other colour.

    Args:
        out: where the two runs go; earlier runs of the demo there are replaced.
        seed: names every random stream.
    """
    from holdfast.cli.commands.fit import train
    from holdfast.cli.common.options import parse

    console = Console()
    results: dict[str, training.FitResult] = {}
    for method in ("erm", "group-balanced"):
        place = out / method
        if (place / "config.yaml").exists():
            shutil.rmtree(place)
        chosen = ["--data", "coloured-digits", "--method", method, "--seed", str(seed), "--out", str(place)]
        results[method] = train(parse(chosen), console)
        console.print()
    console.print(_comparison(results))
    command = "holdfast" if shutil.which("holdfast") else os.path.relpath(sys.argv[0])
    console.print(
        "\nPlain training learned the colour; drawing every group equally often made it learn the digit.\n"
        f"Open [bold]{out}/erm/report.html[/] and [bold]{out}/group-balanced/report.html[/] in a browser.\n\n"
        "Next:\n"
        f"  [bold]{command} fit --method spare --spare.infer-epoch 1[/]   the same repair without group labels\n"
        f"  [bold]{command} fit --help[/]                                 what can be set\n"
        f"  [bold]{command} runs compare {out}/erm {out}/group-balanced[/]\n"
        f"  [bold]{command} fit --data FOLDER --method group-balanced[/]  your own images with a metadata.csv\n"
        f"  [bold]{command} data list[/]                                  data sets that can be fetched",
        highlight=False,
        soft_wrap=True,
    )


def main(arguments: list[str]) -> int:
    """Run the command."""
    tyro.cli(demo, args=arguments, prog="holdfast demo")
    return 0


def _comparison(results: dict[str, training.FitResult]) -> Table:
    table = Table(title="test accuracy by group")
    table.add_column("group")
    for method in results:
        table.add_column(method, justify="right")
    reports = [result.test for result in results.values()]
    for scores in zip(*(report.by_group for report in reports), strict=True):
        table.add_row(scores[0].name, *(f"{100 * (score.accuracy or 0):.1f}%" for score in scores))
    table.add_section()
    table.add_row("[bold]worst group[/]", *(f"[bold]{100 * report.worst_accuracy:.1f}%[/]" for report in reports))
    table.add_row("average (test mix)", *(f"{100 * report.accuracy:.1f}%" for report in reports))
    return table
