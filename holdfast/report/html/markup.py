"""HTML that can't be broken by data: text is escaped unless it was made here.

`tag` builds an element out of children. A child that is a plain string is text and is escaped; a child that is `Html`
was built by `tag` and is taken as it is. So a class named ``<script>`` is shown, never run.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

#: What stands where there is nothing to say.
DASH = "\N{EN DASH}"

_VOID = frozenset({"img", "link", "meta"})


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: object) -> Html:
    """An element.

    Args:
        name: of the element.
        children: text (escaped) and `Html` (not); None is left out.
        attributes: ``class_`` is ``class`` and ``data_value`` is ``data-value``; None is left out, True has no value.

    Returns:
        The markup.

    Example:
        >>> tag("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Html:
    """Several children in a row, text escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children if child is not None))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def percent(share: float | None, digits: int = 1) -> str:
    """A share as people read it; a dash where there is none."""
    return DASH if share is None else f"{share:.{digits}%}"


def loss_text(value: float) -> str:
    """A loss in a table; one that has exploded takes no more room than others."""
    return f"{value:.3f}" if abs(value) < 1e4 else f"{value:.2e}"


def number(count: float | None, digits: int = 0) -> str:
    """A count with its thousands set apart; a dash where there is none."""
    return DASH if count is None else f"{count:,.{digits}f}"


def times(factor: float) -> str:
    """A factor as people read it: ``"0.53×"``, ``"10.1×"``, ``"250×"``."""
    return f"{factor:.{max(0, 2 - (factor >= 10) - (factor >= 100))}f}\N{MULTIPLICATION SIGN}"


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
