"""How many malicious clients a server defends itself against: a setting of the defence, not of a rehearsed attack.

A rule such as the trimmed mean is told a number f of malicious updates per round. What an operator can state is a share
of the federation, and a round holds a random part of it: with K malicious clients among N and m drawn, their number is
hypergeometric, and its mean is exceeded in nearly half of the rounds. So f is an upper quantile: the smallest number
that a round exceeds with probability risk / rounds at most. By the union bound, at most a share `risk` of runs has any
round with more, whatever the rounds have to do with each other. If all take part, f is K.

The count is exactly hypergeometric where clients are drawn uniformly, whoever is malicious. Where they are drawn by
their number of examples it is if who is malicious has nothing to do with how much data a client claims.

The documents' tables (Li et al., 2021, Ditto) use the floor of the mean instead; ``expect_by="mean"`` is that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.settings import Rounds

#: How many cohorts are tried, at most, to find one that a rule stands.
_TRIED = 2000


def hypergeometric_quantile(clients: int, malicious: int, cohort: int, tail: float) -> int:
    """The smallest f such that a cohort holds more than f malicious clients with probability `tail` at most.

    Args:
        clients: of the federation.
        malicious: ones among them.
        cohort: drawn without replacement.
        tail: the probability.

    Example:
        >>> [hypergeometric_quantile(50, 10, cohort, 1e-4) for cohort in (1, 10, 30, 50)]
        [1, 7, 10, 10]
    """
    lowest, highest = max(0, cohort + malicious - clients), min(cohort, malicious)
    counts = torch.arange(lowest, highest + 1, dtype=torch.float64)
    logarithms = _choose(malicious, counts) + _choose(clients - malicious, cohort - counts)
    chances = (logarithms - _choose(clients, torch.tensor(float(cohort), dtype=torch.float64))).exp()
    # From the far end, so that small probabilities are not lost beside large ones.
    beyond = chances.flip(0).cumsum(0).flip(0)[1:]
    return lowest + int((beyond > tail).sum())


def _choose(total: int, some: torch.Tensor) -> torch.Tensor:
    """The logarithm of how many ways there are to choose `some` of `total`."""
    everything = torch.tensor(float(total + 1), dtype=torch.float64)
    return torch.lgamma(everything) - torch.lgamma(some + 1) - torch.lgamma(total - some + 1)


@dataclass(frozen=True)
class Expectation:
    """How many malicious clients the server defends itself against.

    Attributes:
        expect_malicious: a share of the federation (below 1) or a number of clients; that of a rehearsed attack by
            default. Aggregators that must know the number are refused without it; 0 is allowed.
        expect_by: how the number f of a round follows. `quantile` is exceeded in hardly any run, and an aggregator that
            can't withstand so many is refused. `mean` is the rounded-down mean, which many rounds exceed, and refuses
            nothing: the way of the documents' tables.
        expect_risk: share of runs in which some round may hold more than f, for `quantile`.
    """

    expect_malicious: float | None = None
    expect_by: Literal["quantile", "mean"] = "quantile"
    expect_risk: float = 0.001

    def __post_init__(self) -> None:
        stated = self.expect_malicious
        if stated is not None and not (0 <= stated < 1 or (stated >= 1 and float(stated).is_integer())):
            raise ConfigError(
                f"expect_malicious is {stated:g}; give a share from 0 to below 1, or a whole number of clients"
            )
        if not 0 <= self.expect_risk < 1:
            raise ConfigError(f"expect_risk is {self.expect_risk:g}; give a share of runs from 0 to below 1")

    def resolve(self, clients: int, settings: Rounds, attackers: int | None) -> Expected:
        """What is expected of a federation.

        Args:
            clients: how many it has.
            settings: cohort, sampling and rounds.
            attackers: how many a rehearsed attack has; None where none is rehearsed.

        Raises:
            ConfigError: if more malicious clients are expected than there are clients.
        """
        stated, source = self.expect_malicious, "stated"
        if stated is None:
            malicious, source = attackers, "attack" if attackers is not None else "nobody"
        else:
            # Rounded up: a defence that expects a third of ten clients expects four.
            malicious = math.ceil(round(stated * clients, 9)) if stated < 1 else int(stated)
        if malicious is not None and malicious > clients:
            raise ConfigError(f"{malicious} malicious clients are expected among {clients}; expect fewer")
        return Expected(clients, settings.cohort, malicious, source, self, settings)


def expectation_of(given: Expectation | float | None) -> Expectation:
    """What `federate` is told, as an `Expectation`: a share or a number stands for one with the other defaults."""
    return given if isinstance(given, Expectation) else Expectation(given)


@dataclass(frozen=True)
class Expected:
    """What a server expects of a round, once the federation is known.

    Attributes:
        clients: of the federation.
        cohort: of a round.
        malicious: clients of the federation that are expected to be malicious; None where nobody said anything.
        source: who said so: ``stated``, the rehearsed ``attack``, or ``nobody``.
        by: the setting that it follows from.
        settings: sampling and rounds.
    """

    clients: int
    cohort: int
    malicious: int | None
    source: str
    by: Expectation
    settings: Rounds

    @property
    def f(self) -> int:
        """How many malicious updates the server expects in a round."""
        return self.of_cohort(self.cohort)

    def of_cohort(self, cohort: int) -> int:
        """The same if a round had so many clients."""
        malicious = self.malicious or 0
        if self.by.expect_by == "mean" or self.settings.sampling == "stratified":
            # Stratified sampling puts exactly this many into every round.
            return cohort * malicious // self.clients
        return hypergeometric_quantile(
            self.clients, malicious, min(cohort, self.clients), self.by.expect_risk / self.settings.rounds
        )

    def overwhelms(self, aggregator: Aggregator) -> bool:
        """Whether more malicious updates are expected than the rule promises anything for."""
        stands = aggregator.stands(self.cohort)
        return bool(self.malicious) and (stands is None or self.f > stands)

    def check(self, aggregator: Aggregator) -> list[str]:
        """Refuse a rule that can't keep its promise, before round one.

        Returns:
            Sentences to log where the rule works but promises nothing.

        Raises:
            ConfigError: if the rule must be told a number and nobody named one, or stands fewer than are expected.
        """
        if self.malicious is None and aggregator.needs_f and self.by.expect_by == "quantile":
            raise ConfigError(
                f"{aggregator.label} must know how many malicious clients to expect, and none was given; give "
                "--expect-malicious (expect_malicious in Python), such as 0.2 for a fifth of the federation, or 0"
            )
        sentences = []
        if aggregator.stands(self.cohort) is not None:
            if self.by.expect_by == "quantile" and self.overwhelms(aggregator):
                raise ConfigError(self._refusal(aggregator))
        elif self.source == "stated" and self.malicious:
            sentences.append(
                f"{aggregator.label} promises nothing against malicious clients, and {self.malicious} of "
                f"{self.clients} are expected; median, trimmed-mean and others do"
            )
        return sentences + aggregator.check(self.cohort, self.f)

    def _refusal(self, aggregator: Aggregator) -> str:
        said = (
            f"{aggregator.label} withstands {aggregator.stands(self.cohort)} malicious updates among {self.cohort}, "
            f"and with {self.malicious} of {self.clients} clients malicious a round may hold {self.f}"
        )
        works = self.bearable_cohort(aggregator)
        if works is None:
            return f"{said}; no cohort is large enough, so expect fewer, or use a rule that withstands more"
        return f"{said}; use --cohort {works} (up to {self.of_cohort(works)} malicious), or a rule that withstands more"

    def bearable_cohort(self, aggregator: Aggregator) -> int | None:
        """The smallest larger cohort in which the rule stands as many as are expected; None if there is none.

        Of very large federations not every cohort is tried, so it may be a little larger.
        """
        step = max(1, (self.clients - self.cohort) // _TRIED)
        tried: list[int] = [*range(self.cohort + 1, self.clients, step), self.clients]
        for cohort in tried:
            stands = aggregator.stands(cohort)
            if stands is not None and self.of_cohort(cohort) <= stands:
                return cohort
        return None

    def sentence(self) -> str:
        """What was expected, for reports."""
        if self.malicious is None:
            return "Nobody said how many malicious clients to expect."
        who = {"stated": "as was stated", "attack": "as many as the attack has"}[self.source]
        number = f"{self.malicious} of {self.clients} clients were expected to be malicious, {who}"
        if not self.malicious:
            return f"No client was expected to be malicious, {who}."
        if self.by.expect_by == "mean":
            return f"{number}, {self.f} of the {self.cohort} of a round on average, rounded down."
        return f"{number}, at most {self.f} of the {self.cohort} of a round{self._in_how_many()}."

    def _in_how_many(self) -> str:
        certain = self.settings.sampling == "stratified" or self.cohort == self.clients or not self.by.expect_risk
        if certain or self.f == min(self.cohort, self.malicious or 0):
            return ""
        return f" (more in {100 * self.by.expect_risk:.2g}% of runs at most)"

    def record(self) -> dict[str, object]:
        """As a run's record has it."""
        return {
            "malicious": self.malicious,
            "f": self.f,
            "source": self.source,
            "by": self.by.expect_by,
            "risk": self.by.expect_risk,
            "sentence": self.sentence(),
        }
