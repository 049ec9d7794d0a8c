"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table


def plain_table(title: str, columns: Sequence[str], *, right: Sequence[str] = (), **options: Any) -> Table:
    """A table for a terminal, with a rule below its head only.

    Args:
        title: above it.
        columns: their heads.
        right: those whose text stands at the right.
        options: others of `rich.table.Table`.
    """
    table = Table(
        title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, **options
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table
