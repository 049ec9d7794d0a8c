"""What the terminal says about a result's health, and what results are judged against."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.training.evaluation.group_report import GroupReport
    from holdfast.training.health.check import Finding, Health

_STYLES = {"ok": "green", "doubtful": "yellow", "failed": "red"}


def show_health(health: Health, console: Console) -> None:
    """Print the verdict, and what to do about each concern."""
    from rich.markup import escape

    style = _STYLES[health.verdict]
    console.print(f"[{style}]{escape(health.headline)}[/]", highlight=False, soft_wrap=True)
    for remedy in dict.fromkeys(finding.remedy for finding in health.concerns):
        console.print(f"  - {escape(remedy)}", highlight=False, soft_wrap=True)


def show_reference(reference: GroupReport | None, console: Console) -> None:
    """Print how plain training fares on the same test set, where that is known."""
    if reference is not None:
        part = "class" if reference.grouping == "classes" else "group"
        console.print(
            f"Plain training, for comparison: worst {part} {100 * reference.worst_accuracy:.1f} % "
            f"({reference.worst.name}), all {100 * reference.accuracy:.1f} %.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def show_finding(finding: Finding, console: Console) -> None:
    """Print what was found while training goes on, in a line."""
    from rich.markup import escape

    line = escape(f"{finding.check}: {finding.sentence}")
    console.print(f"[{_STYLES[finding.verdict]}]{finding.verdict}[/], {line}", highlight=False, soft_wrap=True)


def reference_report(path: Path) -> GroupReport:
    """The test report of a finished run of `fit`, with what happened to each example where that can be told.

    Raises:
        ConfigError: if the directory holds another kind of run, or one that is not finished.
    """
    from holdfast.report.pages.comparison import with_outcomes
    from holdfast.report.pages.run_record import RunRecord
    from holdfast.training.run import Run

    run = Run.open(path)
    if run.kind not in ("fit", "clip") or run.status != "finished":
        raise ConfigError(f"{path} isn't a finished run of `holdfast fit` that could be a reference; give one")
    report = RunRecord.of(run).report
    assert report is not None
    return with_outcomes(run, report)
