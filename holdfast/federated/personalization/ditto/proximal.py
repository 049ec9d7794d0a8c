"""The pull of a personal model towards an anchor, ``(lambda/2) ||v - w||^2``: what it pulls to, and its limits."""

from __future__ import annotations

from typing import Literal

from holdfast.errors import ConfigError

#: What the proximal term pulls towards: the model `received` in this round, or, as in an earlier version of Ditto, the
#: client's `local` copy of it, which moves during the round.
Anchor = Literal["received", "local"]


def refuse_negative(lambda_: float) -> None:
    """Refuse a lambda that pushes away.

    Raises:
        ConfigError: if it is negative or no number.
    """
    if not lambda_ >= 0:
        raise ConfigError(f"lambda is {lambda_}; give 0 or more")


def refuse_overshoot(lambda_: float, rate: float) -> None:
    """Refuse a proximal term that overshoots: each step multiplies the distance to the anchor by 1 - eta lambda.

    Raises:
        ConfigError: if eta times lambda is 2 or more.
    """
    if rate * lambda_ >= 2:
        raise ConfigError(
            f"lambda {lambda_:g} times the learning rate {rate:g} is 2 or more, so models diverge; lower one of them"
        )
