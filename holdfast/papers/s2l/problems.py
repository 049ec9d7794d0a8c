"""Math problems of unequal frequency for S2L: three published sets of word problems and six kinds of made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data.readers.instructions import Instructions
from holdfast.data.sets.text.math_problems import load_math_problems
from holdfast.papers.s2l.mixture import MIXTURE, REAL, TEST_EXAMPLES
from holdfast.streams import numpy_stream

Draw = np.random.Generator
Pair = tuple[str, str]

#: Word problems longer than this, question and solution together, are left out: they cost most and teach least here.
_LETTERS = 330


@dataclass(frozen=True, eq=False)
class Problems:
    """Problems to learn from and to be tested with.

    Attributes:
        train: unequally many of each source.
        test: equally many of each.
    """

    train: Instructions
    test: Instructions


def make_problems(root: Path, seed: int, share: float = 1.0, tested: int = TEST_EXAMPLES) -> Problems:
    """Draw problems.

    Args:
        root: where data sets live.
        seed: names the random streams.
        share: of the mixture's sizes.
        tested: problems of each source in the test set.
    """
    train, test = list[Mapping[str, str]](), list[Mapping[str, str]]()
    for source, size in MIXTURE.items():
        count = max(4, round(share * size))
        rows = _made(source, count + tested, seed) if source in KINDS else _drawn(source, root, count + tested, seed)
        named = [{"prompt": prompt, "response": response, "source": source} for prompt, response in rows]
        train += named[:count]
        test += named[count:]
    return Problems(Instructions.of(train, name="problems"), Instructions.of(test, name="problems, test"))


def real_problems(root: Path, seed: int, share: float = 1.0, tested: int = TEST_EXAMPLES) -> Problems:
    """All problems of the published sets, of any length; no templates.

    Args:
        root: where data sets live.
        seed: names the random streams that hold problems out.
        share: of the problems to train on.
        tested: problems of each source in the test set.
    """
    train, test = list[Mapping[str, str]](), list[Mapping[str, str]]()
    for source in REAL:
        data = load_math_problems(source, root)
        prompts, responses = data.prompts, data.responses
        order = numpy_stream(seed, "real problems", source).permutation(len(data)).tolist()
        named = [{"prompt": prompts[place][0][1], "response": responses[place], "source": source} for place in order]
        test += named[:tested]
        train += named[tested : tested + max(4, round(share * (len(named) - tested)))]
    return Problems(Instructions.of(train, name="problems"), Instructions.of(test, name="problems, test"))


def _drawn(source: str, root: Path, count: int, seed: int) -> list[Pair]:
    data = load_math_problems(source, root)
    pairs = [
        (turns[0][1], response)
        for turns, response in zip(data.prompts, data.responses, strict=True)
        if len(turns[0][1]) + len(response) <= _LETTERS
    ]
    chosen = numpy_stream(seed, "problems", source).permutation(len(pairs))[:count]
    return [pairs[place] for place in chosen]


def _made(source: str, count: int, seed: int) -> list[Pair]:
    """Different problems of a kind; none is in both sets."""
    draw, responses = numpy_stream(seed, "problems", source), dict[str, str]()
    while len(responses) < count:
        prompt, response = KINDS[source](draw)
        responses.setdefault(prompt, response)
    return list(responses.items())


def _solved(steps: str, answer: int | str) -> str:
    return f"{steps}\n#### {answer}"


def _sum(draw: Draw) -> Pair:
    a, b, c = (int(part) for part in draw.integers(10, 100, 3))
    return f"What is {a} + {b} + {c}?", _solved(f"{a} + {b} = {a + b}\n{a + b} + {c} = {a + b + c}", a + b + c)


def _difference(draw: Draw) -> Pair:
    a, b = sorted((int(part) for part in draw.integers(10, 1000, 2)), reverse=True)
    return f"Subtract {b} from {a}.", _solved(f"{a} - {b} = {a - b}", a - b)


def _product(draw: Draw) -> Pair:
    a, b = (int(part) for part in draw.integers(2, 100, 2))
    tens, ones = divmod(a, 10)
    steps = f"{10 * tens} * {b} = {10 * tens * b}\n{ones} * {b} = {ones * b}\n{10 * tens * b} + {ones * b} = {a * b}"
    return f"Multiply {a} by {b}.", _solved(steps, a * b)


def _sequence(draw: Draw) -> Pair:
    start, step = int(draw.integers(1, 60)), int(draw.integers(2, 13))
    shown = [start + step * place for place in range(4)]
    numbers = ", ".join(map(str, shown))
    return f"Continue the sequence {numbers}.", _solved(
        f"{shown[1]} - {shown[0]} = {step}\n{shown[3]} + {step} = {shown[3] + step}", shown[3] + step
    )


def _comparison(draw: Draw) -> Pair:
    a, b, c = (int(part) for part in draw.choice(np.arange(100, 1000), 3, replace=False))
    return f"Which is the largest: {a}, {b} or {c}?", _solved(
        f"Of {a}, {b} and {c} it is {max(a, b, c)}.", max(a, b, c)
    )


def _remainder(draw: Draw) -> Pair:
    a, b = int(draw.integers(30, 300)), int(draw.integers(3, 13))
    whole, rest = divmod(a, b)
    return f"What is left when {a} is divided by {b}?", _solved(
        f"{b} * {whole} = {b * whole}\n{a} - {b * whole} = {rest}", rest
    )


#: Problems that are made up, each with its steps.
KINDS: Mapping[str, Callable[[Draw], Pair]] = {
    "sums": _sum,
    "differences": _difference,
    "products": _product,
    "sequences": _sequence,
    "comparisons": _comparison,
    "remainders": _remainder,
}
