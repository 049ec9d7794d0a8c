"""The value of a written expression, without running it.

Answers come from a model, so nothing of them may be evaluated by Python or by SymPy's parser, which calls Python's. The
text is parsed to a syntax tree, and only numbers, letters, + - * / ^ and square roots of it are understood. Rational
numbers stay exact. Letters stand for unknowns: an expression is evaluated at a few fixed points, and two expressions
that agree at all of them are the same for our purposes (2(x + 1) and 2x + 2).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from fractions import Fraction

Number = Fraction | float
#: What an expression is worth at each of the points; the same number everywhere if there are no unknowns.
Values = tuple[Number, ...]

_LONGEST = 200  # characters; a longer answer is not an expression
_BITS = 4096  # size of the largest exact power
_POINTS = 3
_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "inf": math.inf}

_NO_FACTOR = frozenset({"+", "-", "*", "/", "**", "(", "sqrt"})
_TOKEN = re.compile(
    r"\s*(?:0*(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>sqrt|pi|inf|[a-zA-Z](?![a-zA-Z]))"
    r"|(?P<sign>[-+*/^()]))\s*"
)


def values_of(expression: str) -> Values | None:
    """What an expression is worth, or None where it is not one.

    Args:
        expression: such as ``"-3/4"``, ``"2*sqrt(3)"``, ``"1.5e3"``, ``"5pi/2"``, ``"(x+1)^2"``; a factor may be
            written without its sign of multiplication, and ``**`` is ``^``.

    Returns:
        Its values; None if it is no expression, is undefined (1/0) or is too large to be worth computing (9^9^9).
    """
    if len(expression) > _LONGEST:
        return None
    try:
        tree = ast.parse(_with_all_signs(expression), mode="eval").body
        found = tuple(_value(tree, point) for point in range(_POINTS))
        defined = not any(math.isnan(value) for value in found)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None
    return found if defined else None


def _with_all_signs(expression: str) -> str:
    """The expression in Python's notation, with a * between factors that have none."""
    text, at, signs = expression.replace("**", "^"), 0, list[str]()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at:]!r} is not arithmetic")
        sign = found[found.lastgroup or 0]
        if signs and signs[-1] not in _NO_FACTOR and (found.lastgroup == "name" or sign == "("):
            signs.append("*")
        signs.append("**" if sign == "^" else sign)
        at = found.end()
    return " ".join(signs)


def _value(node: ast.expr, point: int) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.Name(id=name):
            return _CONSTANTS[name] if name in _CONSTANTS else _unknown(name, point)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, point)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, point)
        case ast.BinOp(left=left, op=sign, right=right):
            return _joined(_value(left, point), sign, _value(right, point))
        case ast.Call(func=ast.Name(id="sqrt"), args=[argument], keywords=[]):
            return _root(_value(argument, point))
    raise ValueError(f"{ast.dump(node)} is not arithmetic")


def _joined(left: Number, sign: ast.operator, right: Number) -> Number:
    match sign:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.Pow():
            return _power(left, right)
    raise ValueError(f"{ast.dump(sign)} is not arithmetic")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent.numerator) <= _BITS:
            return base**exponent.numerator
    return math.pow(base, exponent)


def _root(value: Number) -> Number:
    if isinstance(value, Fraction) and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top**2 == value.numerator and bottom**2 == value.denominator:
            return Fraction(top, bottom)
    return math.sqrt(value)


def _unknown(letter: str, point: int) -> float:
    """A number between 0 and 2 without meaning, another for each letter and point."""
    return math.fmod(ord(letter) * (math.sqrt(2) + point * math.sqrt(3)), 2)
