"""Whether an answer is right.

Two numbers are the same if they are equal, or if one of them is no integer and they differ by at most 1e-4 of the
larger: enough for what programs compute in floating point and for four digits of a fraction (0.3333 is 1/3), too little
for an answer that was rounded away (3.1 is not pi). Integers must be equal. A gold answer of two decimals or more may
have been rounded, so 3.14159 is right where 3.14 is asked for.

MAmmoTH's pipeline, by which the published numbers were taken, compares numbers as text on five of its six sets, and
on MATH calls any number right that rounds to the integer asked for or is within 4 % of another. That takes 11.6 for 12,
so it is not followed here: accuracies on MATH are at most the published rule's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError
from holdfast.finetuning.evaluation.arithmetic import Number
from holdfast.finetuning.evaluation.extraction import extract_answer
from holdfast.finetuning.evaluation.reading import Answer, Part, read_answer

__all__ = ["exact_match", "extract_answer", "same_answer"]

_RELATIVE = Fraction(1, 10**4)
_NEAR_ZERO = Fraction(1, 10**9)


def exact_match(texts: Sequence[str], golds: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts end in the right answer.

    Args:
        texts: what a model has written or a program has printed.
        golds: the right answers, without their derivations.

    Returns:
        bool of shape (n,); a text without an answer is wrong.

    Raises:
        DataError: if there are not as many answers as texts.
    """
    if len(texts) != len(golds):
        raise DataError(f"there are {len(texts)} texts and {len(golds)} right answers; give one answer per text")
    found = [extract_answer(text) for text in texts]
    pairs = zip(found, golds, strict=True)
    return np.array([answer is not None and same_answer(answer, gold) for answer, gold in pairs], dtype=np.bool_)


def same_answer(found: str, gold: str) -> bool:
    """Whether an answer is the right one.

    Several numbers are a set, unless the right answer has round or square brackets: then their order counts, and if
    the answer has brackets too they must be the same ((1, 2) is no [1, 2]). Where both name what they are the values of
    (x = 1, y = 2), names count instead.

    Args:
        found: the answer, such as `extract_answer` gives it.
        gold: the right answer.

    Returns:
        Whether they are the same.
    """
    one, right = read_answer(found), read_answer(gold)
    if one.choice and right.choice:
        return one.choice == right.choice
    if len(one.parts) != len(right.parts):
        return False
    if len(right.parts) == 1:
        return _same_part(one.parts[0], right.parts[0])
    return _same_parts(one, right)


def _same_parts(one: Answer, right: Answer) -> bool:
    names = sorted(part.name for part in right.parts)
    named = all(names) and names == sorted(part.name for part in one.parts)
    if right.brackets[:1] in {"(", "["} and not named:
        pairs = zip(one.parts, right.parts, strict=True)
        return one.brackets in {"", right.brackets} and all(_same_part(*pair) for pair in pairs)
    left = list(one.parts)
    for part in right.parts:
        same = (other for other in left if _same_part(other, part) and (not named or other.name == part.name))
        match = next(same, None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_part(one: Part, right: Part) -> bool:
    if one.text == right.text:
        return True
    if one.values is None or right.values is None:
        return False
    pairs = zip(one.values, right.values, strict=True)
    return all(_same_number(found, gold, right.rounded_by) for found, gold in pairs)


def _same_number(found: Number, gold: Number, rounded_by: Fraction) -> bool:
    if found == gold:
        return True
    if math.isinf(found) or math.isinf(gold):
        return False
    one, right = Fraction(found), Fraction(gold)
    if one.denominator == right.denominator == 1:
        return False
    allowed = max(_RELATIVE * max(abs(one), abs(right)), rounded_by) if one and right else _NEAR_ZERO
    return abs(one - right) <= allowed
