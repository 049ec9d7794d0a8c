"""What reading the user's own data had to guess or to change, shown before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.data import Splits


def show_notes(splits: Splits, console: Console) -> None:
    """Print the notes of data that was read, warnings so that they are seen."""
    for number, note in enumerate(splits.notes):
        style = "yellow" if note.startswith("warning") else "none" if number == 0 else "dim"
        shown = f"{splits.name}: {note}" if number == 0 else f"  {note}"
        console.print(f"[{style}]{escape(shown)}[/]", highlight=False, soft_wrap=True)
