"""The frame of tables that compare runs in a terminal: what all runs share is the title, the rest stands by run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table


def shared_facts(facts: Sequence[Mapping[str, str]]) -> set[str]:
    """The names of facts that are the same for all of several runs; of a single run nothing is shared.

    Args:
        facts: what each run was of, under the same names for all.
    """
    if len(facts) < 2:
        return set()
    return {name for name in facts[0] if len({of_run[name] for of_run in facts}) == 1}


def in_lines(name: str, most: int) -> str:
    r"""A group's name in lines that end where a reader would end them: at a space, or after ``=``, ``/`` or a comma.

    Args:
        name: such as ``toxic=no / source=forum``.
        most: letters of a line; a word that is longer has a line of its own.

    Example:
        >>> in_lines("paper=ruled / ink=blue", 16)
        'paper=ruled /\nink=blue'
    """
    lines = [""]
    for piece in re.findall(r"[^\s=/,]*[=/,]?\s*", name):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > most:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def side_by_side(facts: Sequence[Mapping[str, str]], caption: str | None) -> Table:
    """An empty table whose title is what the runs share.

    Args:
        facts: what each run was of, ready to show.
        caption: below the table.

    Returns:
        The table, to be given columns and rows.
    """
    shared = shared_facts(facts)
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=", ".join(text for name, text in facts[0].items() if name in shared and text) if facts else None,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
