"""An answer taken apart: the letter of a choice, brackets, and one part after the other with its value.

Units are read over, because the test sets leave them out of their answers: ``12 apples``, ``$12``, ``12%`` and ``12``
are all 12. A percent sign is such a unit: ``50%`` is 50, as the sets that ask for percentages write it, and never 0.5.
Words for large numbers count: ``1.5 million`` is 1500000. A time of day is not a number: ``2:30 pm`` is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from holdfast.finetuning.evaluation.arithmetic import Values, values_of
from holdfast.finetuning.evaluation.notation import plain

_LONGEST = 300  # characters; more is prose, not an answer
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

_CHOICE = re.compile(r"(?:(?:option|choice)\s+)?(?:\(([A-Ha-h])\)|([A-H]))\s*(?:$|[).:]\s*|(?<=\))\s+)(.*)", re.DOTALL)
_LEAD = re.compile(
    r"(?:(?:about|approximately|approx\.?|around|roughly|exactly|only|just|USD|US|EUR|GBP|Rs\.?)(?![a-z])|[≈=€£¥₹:])\s*",
    re.I,
)
_NAMED = re.compile(r"([^=<>!]*)=\s*([^=<>]+)|([a-zA-Z]\w*):\s+(.+)")
_MIXED = re.compile(r"(?<![\w./])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\w/.])")
_LETTER_UNIT = re.compile(r"(-?[\d.]+)\s*[mghslLCF](?:\^\(?[23]\)?)?(?:/[mghs](?:\^\(?[23]\)?)?)?")
_UNIT = re.compile(r"(.*?(?:[\d).]|pi|inf))\s*((?:%|/(?=[a-zA-Z]{2})|[a-zA-Zµ])[a-zA-Zµ%\s./'-]*(?:\^\(?-?\d\)?)?)")
_TIME_OF_DAY = re.compile(r"[ap]\.?m\b", re.I)
_ROUNDED = re.compile(r"-?(\d*)\.(\d{2,})")


@dataclass(frozen=True)
class Part:
    """One of the things an answer names.

    Attributes:
        name: what it is the value of, as x in ``x = 1``; empty without one.
        text: as it is written, in the form in which texts are compared.
        values: what it is worth; None for text.
        rounded_by: how far the number may be from the one it was rounded from; 0 where nothing says that it was.
    """

    name: str
    text: str
    values: Values | None
    rounded_by: Fraction = Fraction(0)


@dataclass(frozen=True)
class Answer:
    """An answer taken apart.

    Attributes:
        choice: the letter of a multiple choice, a capital; empty where there is none.
        brackets: those around several parts, such as ``()`` or ``[)``; empty without.
        parts: at least one.
    """

    choice: str
    brackets: str
    parts: tuple[Part, ...]

    @property
    def understood(self) -> bool:
        """Whether it is a choice, or has a value in each part."""
        return bool(self.choice) or all(part.values is not None for part in self.parts)


def read_answer(text: str) -> Answer:
    """Take an answer apart.

    Args:
        text: the answer alone, without the reasoning that led to it.

    Returns:
        Its parts; what is too long or not understood is one part of text.
    """
    if len(text) > _LONGEST:
        return Answer("", "", (Part("", _letters(text), None),))
    text = re.sub(r"np\.\w+\(([^()]*)\)", r"\1", plain(text)).strip(" ,;:!*`").rstrip(" .,;!…")
    chosen, choice = _CHOICE.fullmatch(text), ""
    if chosen and not re.search(r"\([A-H]\)", chosen[3]):
        choice = (chosen[1] or chosen[2]).upper()
        text = chosen[3] or text
    brackets, pieces = _taken_apart(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))
    return Answer(choice, brackets, tuple(part for piece in pieces for part in _parts(piece)))


def _taken_apart(text: str) -> tuple[str, list[str]]:
    """The brackets around several pieces, and the pieces."""
    brackets = ""
    while True:
        pieces = _pieces(text)
        if brackets == "[]" and len(pieces) == 1 and re.fullmatch(r"[-\d.\s]+", text):
            pieces = text.split()  # as NumPy prints arrays
        if len(pieces) > 1:
            return brackets, pieces
        named = _NAMED.fullmatch(text)
        inside = named[2] if named and named[2] and _is_wrapped(named[2]) else text
        if not _is_wrapped(inside):
            return brackets, [text]
        brackets, text = inside[0] + inside[-1], inside[1:-1].strip()


def _pieces(text: str) -> list[str]:
    """What commas, semicolons, *and* and *or* separate, outside of brackets."""
    pieces, depth, begin = list[str](), 0, 0
    for found in re.finditer(r"[(\[{]|[)\]}]|[,;]|\b(?:and|or)\b", text):
        if found[0] in "([{":
            depth += 1
        elif found[0] in ")]}":
            depth -= 1
        elif depth == 0:
            pieces.append(text[begin : found.start()].strip())
            begin = found.end()
    return [piece for piece in [*pieces, text[begin:].strip()] if piece] or [text]


def _is_wrapped(text: str) -> bool:
    """Whether the first bracket is closed by the last sign."""
    if len(text) < 2 or text[0] not in "([{":
        return False
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return place == len(text) - 1
    return False


def _parts(text: str) -> list[Part]:
    if "±" in text:
        return [*_parts(text.replace("±", "+")), *_parts(text.replace("±", "-"))]
    named, name = _NAMED.fullmatch(text), ""
    if named:
        name, text = (named[1] or named[3] or "").strip(), named[2] or named[4]
    elif "=" in text and not re.search("[<>!]", text):
        text = text.rsplit("=", 1)[1]
    text = text.strip()
    values, rounded_by = _amount(text)
    return [Part(name, _letters(text), values, rounded_by)]


def _amount(text: str) -> tuple[Values | None, Fraction]:
    """The value of a number with or without a unit, and by how much it may have been rounded."""
    while lead := _LEAD.match(text):
        text = text[lead.end() :]
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", "*", re.sub("[€£¥₹]", "", text))
    text = _MIXED.sub(r"(\1+\2/\3)", text)
    letter, united = _LETTER_UNIT.fullmatch(text), _UNIT.fullmatch(text)
    number, unit = (letter[1], "") if letter else (text, "")
    values = values_of(number)
    if values is None and united and not _TIME_OF_DAY.match(united[2]):
        number, unit = united[1], united[2]
        values = values_of(number)
    scale = _SCALES.get(unit.split(" ")[0].lower())
    if values is not None and scale is not None:
        return tuple(value * scale for value in values), Fraction(0)
    rounded = _ROUNDED.fullmatch(number)
    if rounded and len((rounded[1] + rounded[2]).lstrip("0")) >= 2:
        return values, Fraction(1, 2 * 10 ** len(rounded[2]))
    return values, Fraction(0)


def _letters(text: str) -> str:
    """The form in which texts are compared: small letters without spaces, quotes and the dots of abbreviations."""
    return re.sub(r"(?<!\d)\s|\s(?!\d)|[\"'`]|(?<=[a-z])\.", "", text.casefold())
