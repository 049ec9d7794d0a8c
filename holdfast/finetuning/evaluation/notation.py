r"""LaTeX and typographic signs as plain text, so that one notation is left to read.

``\frac{3}{4}`` becomes ``(3/4)``, ``1\frac{1}{2}`` becomes ``1 1/2`` and ``2\sqrt{3}`` becomes ``2sqrt(3)``. What has
no plain form stays as it is: such answers are compared as text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_COMMANDS = {
    r"\pi": "pi",
    r"\infty": "inf",
    r"\cdot": "*",
    r"\times": "*",
    r"\div": "/",
    r"\pm": "±",
    r"\circ": "°",
    r"\degree": "°",
    r"\approx": "≈",
    r"\quad": " ",
    r"\qquad": " ",
    r"\left": "",
    r"\right": "",
}
_SIGNS = str.maketrans(
    {
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{MULTIPLICATION SIGN}": "*",
        "\N{DOT OPERATOR}": "*",
        "\N{MIDDLE DOT}": "*",
        "\N{DIVISION SIGN}": "/",
        "\N{FRACTION SLASH}": "/",
        "\N{SUPERSCRIPT TWO}": "^2",
        "\N{SUPERSCRIPT THREE}": "^3",
        "\N{GREEK SMALL LETTER PI}": "pi",
        "\N{INFINITY}": "inf",
        "\N{SQUARE ROOT}": "sqrt",
        "~": " ",
    }
)
_LONGEST = 1000  # characters between braces
_STYLES = ("text", "textbf", "textit", "textrm", "mathrm", "mathbf", "mathit", "mbox", "boxed", "fbox")
_ARGUMENT = re.compile(r"\s*(\\[a-zA-Z]+|\S)")


def plain(text: str) -> str:
    r"""The text without LaTeX, as far as it has a plain form.

    Args:
        text: an answer, such as ``$\dfrac{3}{4}\text{ cm}$``.

    Returns:
        Such as ``(3/4) cm``. Dollar signs are gone, whether they meant mathematics or money.
    """
    text = re.sub("[¼-¾⅐-⅞]", lambda sign: " " + unicodedata.normalize("NFKC", sign[0]), text).translate(_SIGNS)
    text = re.sub(r"\\\$|\$|\\[()\[\]]", "", re.sub(r"(?<!\\)sqrt\s*(\d+)", r"sqrt(\1)", text))
    text = re.sub(r"\\[!,;:]|\{,\}(?=\d{3})", "", text).replace("\\ ", " ").replace("\\%", "%")
    text = re.sub(r"\\([{}])", r" \1 ", re.sub(r"\\[dtc]frac(?![a-z])", r"\\frac", text))
    text = re.sub(r"\\sqrt\s*\[(\d+)\]", r"\\root{\1}", text)
    for style in _STYLES:
        text = _rewritten(text, style, 1, lambda before, words: f" {words} ")
    text = _rewritten(text, "frac", 2, _fraction)
    text = _rewritten(text, "root", 2, lambda before, degree, inside: f"(({inside})^(1/{degree}))")
    text = _rewritten(text, "sqrt", 1, lambda before, inside: f"sqrt({inside})")
    text = re.sub(r"\\[a-zA-Z]+", lambda command: _COMMANDS.get(command[0], command[0]), text)
    text = re.sub(r"_\{([^{}]*)\}", r"_\1", re.sub(r"\^\s*\{([^{}]*)\}", r"^(\1)", text))
    text = re.sub(r"\^\(\s*°\s*\)|\^?\s*°", " deg ", text)
    return re.sub(r"\s+", " ", text).strip()


def closing_brace(text: str, at: int) -> int | None:
    """Where the brace that opens at `at` closes; None where it doesn't within the length of an answer."""
    depth = 0
    for place in range(at, min(len(text), at + _LONGEST)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return None


def _rewritten(text: str, command: str, arguments: int, write: Callable[..., str]) -> str:
    r"""The text with each ``\command{a}{b}`` written as `write` says, given what stands before it and its arguments."""
    for found in reversed(list(re.finditer(rf"\\{command}(?![a-zA-Z])", text))):
        end, given = found.end(), list[str]()
        for _ in range(arguments):
            argument, end = _argument(text, end)
            given.append(argument)
        text = text[: found.start()] + write(text[: found.start()], *given) + text[end:]
    return text


def _argument(text: str, at: int) -> tuple[str, int]:
    """The argument that begins at `at`, in braces or a single sign or command, and where it ends."""
    found = _ARGUMENT.match(text, at)
    if found is None:
        return "", len(text)
    if found[1] == "{":
        close = closing_brace(text, found.start(1))
        end = len(text) if close is None else close
        return text[found.end() : end].strip(), end + 1
    return found[1], found.end()


def _fraction(before: str, top: str, bottom: str) -> str:
    if top.isdigit() and bottom.isdigit():
        return f" {top}/{bottom}" if before[-1:].isdigit() else f"({top}/{bottom})"
    return f"(({top})/({bottom}))"
