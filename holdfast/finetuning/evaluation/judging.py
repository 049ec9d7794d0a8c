"""Judges answers with math-verify. Started by `exact_match` as a process of its own, never imported.

Its argument is the number of seconds for reading an answer, and again for comparing it. It reads a JSON list of [text,
right answer], and prints a line when it is ready, then 1 or 0 for each. A process of its own because math-verify stops
a long computation by SIGALRM, which works in the main thread only and which the caller may need; because the memory of
a computation that a model thought of must have a limit; and because it can be killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from functools import partial

_MEMORY = 4 * 2**30  # bytes
_LETTERS = "ABCDEFGH"
_CHOICE = re.compile(rf"\(?([{_LETTERS}])\)?")


def main() -> None:
    """Judge what comes from standard input."""
    sys.path.pop(0)  # this folder, whose modules are nobody's top level
    with contextlib.suppress(ImportError, ValueError):  # not on Windows; not above a lower limit
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    import math_verify  # noqa: F401, PLC0415

    logging.disable()  # math-verify warns of every answer that takes too long
    pairs, seconds = json.load(sys.stdin), int(sys.argv[1])
    sys.stdout.write("\n")
    for text, gold in pairs:
        sys.stdout.flush()
        sys.stdout.write(f"{int(is_right(text, gold, seconds))}\n")


def is_right(text: str, gold: str, seconds: int) -> bool:
    """Whether a text ends in the right answer, by math-verify's rules.

    A right answer that is the letter of a choice is looked for as a letter; all others as LaTeX and as numbers.
    """
    from math_verify import StringExtractionConfig, parse, verify  # noqa: PLC0415

    read = partial(parse, parsing_timeout=seconds)
    choice = _CHOICE.fullmatch(gold.strip())
    if choice is None:
        right, found = read(boxed(gold)), read(text)
    elif r"\boxed" in text:
        right, found = read(boxed(choice[1])), read(text)
    else:
        right, found = choice[1], read(_CHOICE.sub(r"\1", text), [StringExtractionConfig(tuple(_LETTERS))])
    return bool(verify(right, found, timeout_seconds=seconds))


def boxed(answer: str) -> str:
    """An answer alone as LaTeX's announcement of one, so that all of it is read."""
    return rf"\boxed{{{answer}}}"


if __name__ == "__main__":
    main()
