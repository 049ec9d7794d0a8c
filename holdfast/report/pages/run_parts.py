"""What the pages of all kinds of runs share: the banner of an unfinished one, and how to repeat it."""

from __future__ import annotations

import shlex

from holdfast.report.html.markup import Html, tag
from holdfast.report.html.page import code, folded, section
from holdfast.report.html.tables import facts_table
from holdfast.training.run import Run


def unfinished_banner(run: Run, progress: str, *, what: str, command: str) -> Html:
    """Why numbers are missing or provisional.

    Args:
        run: a run that isn't finished.
        progress: how far it is, in a clause.
        what: what it is called: ``run`` or ``federation``.
        command: the command of holdfast that continues it.

    Returns:
        The banner, with the line to type where the run was interrupted.
    """
    if run.status == "running":
        return tag("p", f"This {what} is still going on: {progress}.", class_="banner")
    resume = f"holdfast {command} --resume {shlex.quote(str(run.path.resolve()))}"
    return tag(
        "p", f"This {what} was interrupted: {progress}. Continue it with ", tag("code", resume), ".", class_="banner"
    )


def repeat_section(run: Run, measured: Html | None, *, command: str) -> Html:
    """What a page ends with: cost and environment side by side, the command that repeats the run, its configuration.

    Args:
        run: the run.
        measured: what it cost, if that is known.
        command: the command of holdfast that made it.

    Returns:
        The section.
    """
    path = run.path.resolve()
    again, config = path.with_name(f"{path.name}-again"), shlex.quote(str(path / "config.yaml"))
    return section(
        "The run",
        tag("div", measured, tag("div", tag("h3", "Environment"), facts_table(run.environment)), class_="columns"),
        tag("h3", "Repeat it"),
        code(f"holdfast {command} --config {config} --out {shlex.quote(str(again))}"),
        folded("Configuration", code((run.path / "config.yaml").read_text())),
        id_="facts",
    )
