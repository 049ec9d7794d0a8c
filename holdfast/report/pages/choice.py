"""One self-contained page for a choice without clusters: what was chosen of each source, and some of its texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import counted
from holdfast.report.html.markup import number, tag
from holdfast.report.html.page import findings, hero, large_number, opening, section, write_page
from holdfast.report.html.tables import facts_table
from holdfast.report.pages.selection import short, sources_table

_TEXTS = 12

Ints = NDArray[np.int64]


def write_choice_page(
    path: Path, positions: Ints, data: Instructions, *, method: str, about: str, facts: Mapping[str, Any]
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        positions: of the chosen examples.
        data: what they were chosen from.
        method: that chose them.
        about: how they were chosen, in a clause.
        facts: how the selection was made, by name.

    Returns:
        Where the page is.
    """
    several = len(data.source_names) > 1
    name = Path(data.name).name
    who = f"{number(len(positions))} of {number(len(data))} examples"
    large = large_number("Chosen", f"{100 * len(positions) / len(data):.0f}", "%", [who])
    skipped = f"{counted(len(data.skipped), 'row')} passed over, such as: {data.skipped[0]}." if data.skipped else None
    shown = positions[np.linspace(0, len(positions) - 1, min(_TEXTS, len(positions))).astype(int)]
    texts = [
        tag(
            "li",
            tag("p", short(prompt[-1][1] if (prompt := data.chats[place].prompt) else "")),
            tag("p", short(data.chats[place].response), class_="response"),
        )
        for place in shown.tolist()
    ]
    parts = [
        opening("holdfast selection", method, name, [about], hero(large, findings(skipped))),
        section("Sources", sources_table(positions, data), id_="sources") if several else None,
        section("Some of the chosen", tag("ul", *texts, class_="texts"), id_="texts"),
        section("This selection", facts_table(facts), id_="facts"),
    ]
    return write_page(path, f"{name}: {counted(len(positions), 'example')} chosen", *parts)
