"""Numbers of a table in a phrase, for the evidence of claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def listed(numbers: Mapping[str, float], form: str) -> str:
    """Numbers with what they belong to.

    Args:
        numbers: by name.
        form: how one of them is written, with its ``{name}`` and its ``{value}``.

    Example:
        >>> listed({"erm": 62.6, "spare": 89.8}, "{value:.1f} with {name}")
        '62.6 with erm, 89.8 with spare'
    """
    return ", ".join(form.format(name=name, value=value) for name, value in numbers.items())


def slashed(numbers: Iterable[float], digits: int = 3) -> str:
    """Numbers of several seeds or rows in their order.

    Example:
        >>> slashed([0.5, 0.25], 2)
        '0.50 / 0.25'
    """
    return " / ".join(f"{number:.{digits}f}" for number in numbers)
