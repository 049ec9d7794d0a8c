"""What reading the user's own data had to guess or to change, shown before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


def show_notes(notes: Sequence[str], name: str, console: Console) -> None:
    """Print the notes of data that was read, warnings so that they are seen."""
    for number, note in enumerate(notes):
        style = "yellow" if note.startswith("warning") else "none" if number == 0 else "dim"
        shown = f"{name}: {note}" if number == 0 else f"  {note}"
        console.print(f"[{style}]{escape(shown)}[/]", highlight=False, soft_wrap=True)
