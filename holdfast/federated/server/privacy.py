"""Client-level differential privacy: the shared model hardly depends on whether any one client took part.

Every client's update is cut to the length C. The server adds them up, adds normal noise of standard deviation z C to
every coordinate of the sum, and divides by the number of clients that it expected (McMahan et al., 2018,
https://arxiv.org/abs/1710.06963, with a fixed denominator). One client more or less changes the sum by C at most, so
each round is a Gaussian mechanism with the noise multiplier z.

What is accounted for is what is done: each client is drawn by itself with the chance q = cohort / clients (``poisson``
sampling), and rounds add up by the accountant of opacus (extra ``privacy``) for the sampled Gaussian mechanism. Two
federations are neighbours if one has all of one client's data and the other none of it. A round that nobody is drawn in
gets its noise too. How many clients there are, and C, z and the rounds, are taken to be public.

Where the noise comes from and who was drawn must not be known, so both come from a key of the operating system's
generator, which only the checkpoint has; a seed in its place makes a rehearsal that can be repeated, and protects
nobody.

The server is trusted: it sees updates before the noise. The guarantee is for who sees the shared model. A personal
model stays with its client and learns of others through the shared model only, so it takes no noise: other clients are
hidden from it as well, and the client's own data is its own. What else a run's folder has is no part of it:
checkpoints, accuracies by client, who took part.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.federated.aggregation import Aggregator, Mean
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.settings import Rounds
from holdfast.primitives.projections import project_to_ball
from holdfast.streams import torch_stream

#: Where the server's state has the key.
KEY = "privacy/key"


@dataclass(frozen=True)
class ClientPrivacy:
    """Clips every client's update and hides it in noise.

    Attributes:
        clip: C, the longest update that counts in full.
        noise_multiplier: z, the standard deviation of the noise on the sum of updates, as a multiple of `clip`.
        epsilon: what the whole run may spend; the noise multiplier is computed for it, and the other is not looked at.
        delta: probability of a failure; clients^(-1.1) by default.
        accountant: how opacus adds up rounds: by Renyi differential privacy, or numerically, which finds less spent.
        noise_seed: makes noise and sampling repeatable, for experiments: whoever knows it can take the noise off.
    """

    clip: float = 1.0
    noise_multiplier: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    accountant: Literal["rdp", "prv"] = "rdp"
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("clip", "noise_multiplier", "epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"privacy's {name} is {value:g}; give a positive number")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ConfigError(f"privacy's delta is {self.delta:g}; give a probability, below 1 / clients")

    def check(self, settings: Rounds, objective: FederatedObjective, aggregator: Aggregator, clients: int) -> None:
        """Refuse what the accountant's answer would not be true of.

        Raises:
            ConfigError: which says what, and what to do.
        """
        if settings.sampling != "poisson":
            raise ConfigError(
                f"privacy is accounted for clients that are drawn one by one, and sampling is {settings.sampling!r}; "
                'give --sampling poisson (sampling="poisson" in Python)'
            )
        if not isinstance(aggregator, Mean):
            raise ConfigError(
                f"it is not known how far one client can move {aggregator.label}, so no noise is known to hide it; use "
                "mean: privacy clips every update, so an attacker moves the sum by the clip at most"
            )
        if objective.needs_losses or objective.second is not None:
            what = "their losses" if objective.needs_losses else "a second vector"
            raise ConfigError(
                f"for {objective.name} clients send {what} too, which gets no noise here; use fedavg or fedprox"
            )
        if self.delta is not None and self.delta >= 1 / clients:
            raise ConfigError(
                f"privacy's delta is {self.delta:g}: with {clients} clients, giving away one of them altogether would "
                f"be private; give less than {1 / clients:g}"
            )
        self.spent(settings, clients, settings.rounds)  # where opacus is missing, it is missed now

    # ---------------------------------------------------------------------------------------------- the mechanism

    def begin(self) -> dict[str, Tensor]:
        """The key of noise and sampling."""
        key = secrets.randbits(63) if self.noise_seed is None else self.noise_seed
        return {KEY: torch.tensor(key, dtype=torch.int64)}

    def mean(self, updates: Tensor, expected: int) -> Tensor:
        """The sum of clipped updates over the number of clients that were expected, without noise, shape (P,).

        Args:
            updates: shape (m, P); m may be 0.
            expected: q times the number of clients, whoever came.
        """
        clipped = project_to_ball(updates.double(), self.clip)
        return (clipped.sum(dim=0) / expected).to(updates.dtype)

    def noise(self, size: int, settings: Rounds, clients: int, state: dict[str, Tensor], number: int) -> Tensor:
        """What is added to that mean in round `number`, from 0: float64 of shape (size,)."""
        generator = torch_stream(int(state[KEY]), "privacy", number)
        spread = self.resolved_noise(settings, clients) * self.clip / settings.cohort
        return spread * torch.randn(size, generator=generator, dtype=torch.float64)

    # ---------------------------------------------------------------------------------------------- accounting

    def resolved_delta(self, clients: int) -> float:
        """Delta; by default clients^(-1.1), below the chance to be the one client who is given away."""
        return clients**-1.1 if self.delta is None else self.delta

    def resolved_noise(self, settings: Rounds, clients: int) -> float:
        """The noise multiplier: as given, or the smallest that keeps the whole run within `epsilon`."""
        if self.epsilon is None:
            return self.noise_multiplier
        wanted = (self.epsilon, self.resolved_delta(clients), settings.cohort / clients, settings.rounds)
        return _noise_for(*wanted, self.accountant)

    def spent(self, settings: Rounds, clients: int, rounds: int) -> PrivacySpent:
        """What `rounds` rounds have spent."""
        delta, noise = self.resolved_delta(clients), self.resolved_noise(settings, clients)
        rate = settings.cohort / clients
        epsilon = _epsilon([(noise, rate, rounds)] if rounds else [], delta, self.accountant)
        return PrivacySpent(epsilon, delta, self.clip, noise, rate, rounds, self.accountant, self.noise_seed is None)


@dataclass(frozen=True)
class PrivacySpent:
    """What a federation has spent.

    Attributes:
        epsilon: of (epsilon, delta) differential privacy of clients, for who sees the shared model.
        delta: likewise.
        clip: the longest update.
        noise_multiplier: of the sum of clipped updates.
        sampling_rate: the chance of a client to be in a round.
        rounds: so far.
        accountant: how they were added up.
        secret: whether the noise came from a key that nobody knows; without, nobody is protected.
    """

    epsilon: float
    delta: float
    clip: float
    noise_multiplier: float
    sampling_rate: float
    rounds: int
    accountant: str
    secret: bool

    def sentence(self) -> str:
        """What was spent, for reports."""
        said = (
            f"The shared model is ({self.epsilon:.3g}, {self.delta:.2g})-differentially private for every client: "
            f"updates cut to {self.clip:g}, noise multiplier {self.noise_multiplier:.4g}, "
            f"{self.rounds} rounds of Poisson samples with rate {self.sampling_rate:.3g}, {self.accountant.upper()} "
            "accountant of opacus"
        )
        if self.secret:
            return f"{said}."
        return f"{said}; its noise can be repeated from a seed, so this is a rehearsal that protects nobody."

    def record(self) -> dict[str, Any]:
        """As a run's record has it."""
        return {
            **asdict(self),
            "sampling": "poisson",
            "sentence": self.sentence(),
        }


def _epsilon(history: Sequence[tuple[float, float, int]], delta: float, accountant: str) -> float:
    if not history:
        return 0.0
    made = _accountants().create_accountant(accountant)
    made.history = list(history)
    return float(made.get_epsilon(delta))


@cache
def _noise_for(epsilon: float, delta: float, rate: float, rounds: int, accountant: str) -> float:
    """The smallest noise multiplier, to a thousandth, with which so many rounds spend `epsilon` at most."""

    def spends(noise: float) -> float:
        return _epsilon([(noise, rate, rounds)], delta, accountant)

    low, high = 0.0, 1.0
    while spends(high) > epsilon:
        low, high = high, 2 * high
        if high > 1e6:
            raise ConfigError(f"no noise keeps {rounds} rounds within an epsilon of {epsilon:g}; give a larger one")
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if spends(middle) > epsilon else (low, middle)
    return high


def _accountants() -> Any:
    try:
        from opacus import accountants  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError("privacy is accounted for by opacus; pip install 'holdfast[privacy]'") from error
    return accountants
