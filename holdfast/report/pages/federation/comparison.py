"""Federations side by side in a terminal: a row per run and model."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from holdfast.report.html.markup import loss_text
from holdfast.report.pages.federation.record import FederationRecord
from holdfast.report.pages.side_by_side import shared_facts, side_by_side

_COLUMNS = {"mean": "mean", "pooled": "pooled", "std": "std", "worst_tenth": "worst\n10%", "worst": "worst"}
_FACTS = ("data", "model", "objective", "aggregate", "attack", "malicious", "seed")


def federation_table(records: Sequence[FederationRecord]) -> Table:
    """The runs for a terminal; what is the same for all of them is in the title.

    Args:
        records: finished or not; unfinished ones are shown as of their last evaluation.

    Returns:
        A table to print with rich.
    """
    facts_by_run = [{key: _in_words(key, record.config.get(key)) for key in _FACTS} for record in records]
    measures = " or ".join(dict.fromkeys(record.measure.name for record in records))
    caption = f"test {measures} of benign clients: mean is robustness, std (lower is fairer) is fairness"
    shared, table = shared_facts(facts_by_run), side_by_side(facts_by_run, caption)
    table.add_column("run", overflow="fold")
    table.add_column("model", no_wrap=True)
    for name in (*_COLUMNS.values(), "loss"):
        table.add_column(name, justify="right", no_wrap=True)
    for record, facts in zip(records, facts_by_run, strict=True):
        own = ", ".join(text for key, text in facts.items() if key not in shared and text)
        if not record.finished:
            own = ", ".join(part for part in (own, f"{record.status} after round {record.done}") if part)
        name = escape(record.path.resolve().name) + (f"\n[dim]{escape(own)}[/dim]" if own else "")
        style = None if record.finished else "dim"
        for place, (label, summary) in enumerate(record.models.items()):
            scores = [record.measure.text(summary[key]) for key in _COLUMNS]
            table.add_row("" if place else name, label, *scores, loss_text(summary["loss"]), style=style)
        if not record.models:
            table.add_row(name, style=style)
        table.add_section()
    return table


def _in_words(key: str, value: object) -> str:
    if value in (None, "") or (key == "malicious" and not value):
        return ""
    return f"seed {value}" if key == "seed" else f"{value} malicious" if key == "malicious" else str(value)
