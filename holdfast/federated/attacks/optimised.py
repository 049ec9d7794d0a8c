"""Attacks that know the server's rule and try it out: ALIE and inner-product manipulation with the most harmful factor.

A fixed factor is a guess at what goes unnoticed. An attacker that knows the rule and the benign updates of the round
searches for the factor that moves the server's step farthest from the benign mean (Shejwalkar and Houmansadr, 2021,
https://www.ndss-symposium.org/ndss-paper/manipulating-the-byzantine/). The search is the published one of byzfl: double
the steps while the harm grows, then go on with steps that shrink. Each trial costs one run of the rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import mean
from holdfast.federated.attacks.base import Attack, Defence
from holdfast.federated.attacks.omniscient import known_updates, spread

_START, _STEP, _SHRINK = 0.0, 10.0, 0.8


def most_harmful_factor(harm: Callable[[float], float], evaluations: int) -> float:
    """The factor from zero on with the largest harm that a search of so many evaluations finds.

    Args:
        harm: of a factor.
        evaluations: how often it may be called.
    """
    factor, most, step = _START, harm(_START), _STEP
    growing = True
    for _ in range(evaluations - 1):
        tried = harm(factor + step)
        if tried > most:
            factor, most = factor + step, tried
            step *= 2 if growing else _SHRINK
        else:
            growing, step = False, step * _SHRINK
    return factor


@dataclass(frozen=True)
class OptimisedAttack(Attack):
    """One vector for all malicious clients, from a family with a factor that is searched for in every round.

    Attributes:
        evaluations: how often the server's rule is tried per round.
    """

    evaluations: int = 20

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise ConfigError(f"{self.name}'s evaluations is {self.evaluations}; give at least 1")

    @abstractmethod
    def vector(self, known: Tensor, factor: float) -> Tensor:
        """What is sent, shape (parameters,), of the benign updates (benign, parameters) and a factor."""

    def send(
        self,
        updates: Tensor,
        malicious: Tensor,
        *,
        clients: Tensor,
        seed: int,
        number: int,
        defence: Defence | None = None,
    ) -> Tensor:
        """As ever, with the factor that does most harm to this rule; without a rule, to the mean."""
        if not malicious.any():
            return updates
        known = known_updates(updates, malicious)
        benign, rule = mean(known).double(), defence or mean

        def harm(factor: float) -> float:
            sent[malicious] = self.vector(known, factor)
            return float((rule(sent).double() - benign).norm())

        sent = updates.clone()
        sent[malicious] = self.vector(known, most_harmful_factor(harm, self.evaluations))
        return sent

    def forge(self, updates: Tensor, malicious: Tensor, *, clients: Tensor, seed: int, number: int) -> Tensor:
        """What malicious clients send where the rule is not known."""
        return self.send(updates, malicious, clients=clients, seed=seed, number=number)[malicious]


@dataclass(frozen=True)
class OptimisedLittleIsEnough(OptimisedAttack):
    """ALIE with the factor that does most harm: the benign mean, moved by so many standard deviations."""

    name: ClassVar[str] = "optimised-alie"

    def vector(self, known: Tensor, factor: float) -> Tensor:
        """The benign mean and `factor` standard deviations."""
        return mean(known) + factor * spread(known)


@dataclass(frozen=True)
class OptimisedInnerProduct(OptimisedAttack):
    """Inner-product manipulation with the factor that does most harm: the benign mean, reversed and so much longer."""

    name: ClassVar[str] = "optimised-inner-product"

    def vector(self, known: Tensor, factor: float) -> Tensor:
        """The benign mean times minus `factor`."""
        return -factor * mean(known)
