"""What the terminal says while ``--method auto`` tries methods, and what it chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.auto.record import Choice, Try


def show_try(tried: Try, console: Console) -> None:
    """A line per method that was tried."""
    from rich.markup import escape

    if tried.refused:
        said = f"not tried: {tried.refused}"
    else:
        gain = "" if tried.method == "erm" else f", {100 * tried.gain:+.1f} over erm (at least {100 * tried.low:+.1f})"
        said = f"worst part of validation {100 * tried.score:.1f} %{gain}; {tried.health}; {tried.seconds:.1f} CPU s"
    console.print(f"  [bold]{escape(tried.method)}[/] {escape(said)}", highlight=False, soft_wrap=True)


def show_choice(choice: Choice, console: Console) -> None:
    """The method, why, and what choosing cost."""
    from rich.markup import escape

    cost = f"Choosing took {choice.seconds:.1f} CPU seconds, {choice.epochs} epochs for each of {len(choice.tries)}."
    chosen = f"auto chose [bold]{escape(choice.method)}[/]. {escape(choice.why)} {cost}"
    console.print(chosen, highlight=False, soft_wrap=True)
