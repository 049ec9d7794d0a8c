"""`holdfast audit verdict`: a person's verdict on what `holdfast audit multimodal` found."""

from __future__ import annotations

import datetime
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape

from holdfast.cli.common.tables import plain_table
from holdfast.multimodal.audit.reviews import Decision, Review, decide


def audit_verdict(arguments: list[str]) -> None:
    """Run the command."""
    tyro.cli(write_verdict, args=arguments, prog="holdfast audit verdict")


def write_verdict(
    folder: tyro.conf.Positional[Path], *, label: str, word: str, verdict: Decision, reviewer: str, reason: str
) -> None:
    """Write down what a person decided about a finding; without a verdict nothing is mitigated.

    Args:
        folder: of the audit.
        label: name of the class.
        word: the attribute.
        verdict: spurious, a healthy part of the class, or unsure.
        reviewer: who decides.
        reason: why.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    decided = decide(folder, Review(label, word, verdict, reviewer, reason, now))
    table = plain_table(f"{folder}: verdicts", ("class", "attribute", "verdict", "reviewer", "reason"))
    for one in decided:
        table.add_row(*(escape(text) for text in (one.label, one.word, one.verdict, one.reviewer, one.reason)))
    Console().print(table)
    if any(one.verdict == "spurious" for one in decided):
        Console().print(f"Next: [bold]holdfast fit --task clip --audit {folder}[/]", highlight=False, soft_wrap=True)
