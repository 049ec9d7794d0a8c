"""The options of ``--method auto``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class Auto:
    """Try the methods that what is known allows, and train with the one that is clearly better than plain training.

    Attributes:
        effort: what all tries together may cost, in trainings of the chosen length; each gets an equal share.
        tries: the methods to try, plain training (erm) among them; by default those that the known groups allow.
        level: how sure a gain over plain training has to be: the probability with which the paired bootstrap intervals
            of all tries hold at once; that of the worst group must lie above zero.
    """

    name: ClassVar[str] = "auto"

    effort: float = 4.0
    tries: tuple[str, ...] = ()
    level: float = 0.8

    def __post_init__(self) -> None:
        if not (math.isfinite(self.effort) and self.effort > 0):
            raise ConfigError(f"effort of auto is {self.effort}; give a positive number of trainings")
        if not 0 < self.level < 1:
            raise ConfigError(f"level of auto is {self.level}; give a probability between 0 and 1")
        if self.tries and "erm" not in self.tries:
            raise ConfigError("the tries of auto lack erm, which the others are compared with; add it")
