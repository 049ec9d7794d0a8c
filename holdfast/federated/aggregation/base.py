"""What an aggregation rule is: a function of the updates of a round, and the number of attackers it can stand.

A rule is a frozen dataclass, so its fields are its options on the command line. It says how many attackers it `stands`
and whether it must be told their number, so that a federation is refused before its first round instead of averaging
nonsense for hours. What a rule remembers between rounds is a dictionary of tensors that it is given and gives back: the
server keeps it in its checkpoints, so a federation that was killed goes on to the bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.federated.aggregation.sums import mean

#: What a published bound covers, from the least to the most (`Aggregator.covers`).
Covers = Literal["nothing", "length", "alike", "unlike"]

#: What a rule remembers between rounds, by names that begin with the rule's own.
Memory = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class RoundFacts:
    """What a rule may know of a round besides the updates.

    Attributes:
        f: how many of the updates the server expects to be malicious.
        losses: training loss of each client at the model it received, shape (m,), where the rule needs it.
        clients: ids of those who sent the updates, int64 of shape (m,).
        seed: of the run, for rules that draw.
        number: of the round, from 0.
    """

    f: int = 0
    losses: Tensor | None = None
    clients: Tensor | None = None
    seed: int = 0
    number: int = 0


@dataclass(frozen=True)
class Aggregator(ABC):
    """A rule that turns the updates of a round into the server's step.

    Updates are finite: the engine drops others before. Rows are in the order of client ids, which settles ties.
    """

    name: ClassVar[str]

    @abstractmethod
    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:
        """The server's step.

        Args:
            updates: what the clients sent, shape (m, parameters).
            f: how many of them the server expects to be malicious.
            losses: training loss of each client at the model it received, shape (m,), where `needs_losses`.

        Returns:
            Shape (parameters,), in the dtype of the updates.
        """

    @property
    def label(self) -> str:
        """How a command line names this rule."""
        return self.name

    @property
    def needs_losses(self) -> bool:
        """Whether clients must report their loss."""
        return False

    @property
    def averages(self) -> bool:
        """Whether the rule is a plain mean, perhaps of prepared updates; only then can an objective weigh clients."""
        return False

    @property
    def needs_clients(self) -> bool:
        """Whether the rule must know who sent an update."""
        return False

    @property
    def needs_f(self) -> bool:
        """Whether the rule does something else, or nothing, unless it is told how many attackers to expect."""
        return False

    def stands(self, m: int) -> int | None:
        """The most attackers among `m` updates with which the rule keeps its published bound.

        None where it has none: one attacker can move the result anywhere.
        """
        return None

    @property
    def covers(self) -> Covers:
        """What the rule's published bound promises of a shared model, as long as it `stands` the attackers.

        - ``nothing``: one attacker can move the result anywhere.
        - ``length``: the result is no longer than honest updates are, wherever it points.
        - ``alike``: it is near the honest mean where honest updates are alike, as those of clients with data of one
          distribution. Its distance from that mean, in units of the honest spread, stays where nobody attacks.
        - ``unlike``: that distance vanishes with the share of attackers, so clients may differ
          (Allouah et al., 2023; Karimireddy et al., 2022).
        """
        return "nothing"

    def begin(self, clients: int, parameters: int) -> Memory:
        """What is remembered before the first round of a federation of so many clients and parameters."""
        return {}

    def step(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The server's step, and what to remember; rules with a memory override it.

        Args:
            updates: what the clients sent, shape (m, parameters).
            facts: what else is known of the round.
            memory: what was remembered; empty for a rule that is used outside of a federation.

        Returns:
            Shape (parameters,), and the new memory; the old one is not changed.
        """
        return self(updates, f=facts.f, losses=facts.losses), memory

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The updates after the steps that come before any weighing, such as clipping, and what to remember."""
        return updates, memory

    def check(self, m: int, f: int) -> list[str]:
        """What to say about `m` updates of which `f` are malicious, before training starts.

        Args:
            m: clients per round.
            f: how many of them the server expects to be malicious.

        Returns:
            Sentences to log where the rule works but promises nothing.

        Raises:
            ConfigError: where the rule is not defined.
        """
        if not 0 <= f <= m or m < 1:
            raise ConfigError(f"{self.label} got {f} attackers among {m} clients per round; give from 0 to all of them")
        return []


@dataclass(frozen=True)
class Mean(Aggregator):
    """The unweighted mean (FedAvg); a single attacker can move it anywhere."""

    name: ClassVar[str] = "mean"

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return mean(updates)

    @property
    def averages(self) -> bool:
        """It is the mean."""
        return True


@dataclass(frozen=True)
class PreStep(Aggregator):
    """A step that makes other updates of the updates; by itself it is followed by the mean.

    It goes before another rule by ``>>``, such as ``Clipping() >> Krum()``. Derive, and write `transform`.
    """

    @abstractmethod
    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The new updates, shape (`remaining` of m, parameters), and what to remember."""

    @property
    def covers(self) -> Covers:
        """What it makes of the mean."""
        return self.before("nothing")

    def before(self, covers: Covers) -> Covers:
        """What a rule that covers so much covers behind this step."""
        return covers

    def remaining(self, m: int) -> int:
        """How many updates are left of `m`; only a step that leaves all can go before losses or weights."""
        return m

    def prepare(self, updates: Tensor, *, f: int = 0) -> Tensor:
        """The new updates without a memory, outside of a federation."""
        return self.transform(updates, RoundFacts(f), {})[0]

    def step(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The mean of the new updates."""
        ready, memory = self.transform(updates, facts, memory)
        return mean(ready), memory

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return mean(self.prepare(updates, f=f))

    def __rshift__(self, then: Aggregator) -> WithPreStep:
        return WithPreStep(self, then)

    @property
    def averages(self) -> bool:
        """The mean follows."""
        return self.remaining(2) == 2


@dataclass(frozen=True)
class WithPreStep(Aggregator):
    """A pre-step, then any other rule.

    Attributes:
        first: what is done to the updates.
        then: what combines them.
    """

    name: ClassVar[str] = "chain"

    first: PreStep
    then: Aggregator

    def __call__(self, updates: Tensor, *, f: int = 0, losses: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.step(updates, RoundFacts(f, losses), {})[0]

    def begin(self, clients: int, parameters: int) -> Memory:
        """What both remember."""
        return {**self.first.begin(clients, parameters), **self.then.begin(clients, parameters)}

    def step(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """The rule's step on what the pre-step leaves."""
        ready, memory = self.first.transform(updates, facts, memory)
        return self.then.step(ready, self._behind(facts, updates, ready), memory)

    def transform(self, updates: Tensor, facts: RoundFacts, memory: Memory) -> tuple[Tensor, Memory]:
        """All pre-steps, one after another."""
        ready, memory = self.first.transform(updates, facts, memory)
        return self.then.transform(ready, self._behind(facts, updates, ready), memory)

    @staticmethod
    def _behind(facts: RoundFacts, updates: Tensor, ready: Tensor) -> RoundFacts:
        """What is known of the new updates: nobody sent them where they are fewer."""
        return facts if len(ready) == len(updates) else replace(facts, clients=None, losses=None)

    @property
    def label(self) -> str:
        """Both names, joined."""
        return f"{self.first.label}+{self.then.label}"

    @property
    def needs_losses(self) -> bool:
        """Whether the rule at the end does."""
        return self.then.needs_losses

    @property
    def averages(self) -> bool:
        """Whether the rule at the end is a mean, of as many updates as there are clients."""
        return self.first.averages and self.then.averages

    @property
    def needs_clients(self) -> bool:
        """Whether one of them does."""
        return self.first.needs_clients or self.then.needs_clients

    @property
    def needs_f(self) -> bool:
        """Whether one of them does."""
        return self.first.needs_f or self.then.needs_f

    @property
    def covers(self) -> Covers:
        """What the step leaves of what the rule at the end covers."""
        return self.first.before(self.then.covers)

    def stands(self, m: int) -> int | None:
        """As many as both stand; a step or a rule without a promise leaves that of the other."""
        both = [self.first.stands(m), self.then.stands(self.first.remaining(m))]
        return min((most for most in both if most is not None), default=None)

    def check(self, m: int, f: int) -> list[str]:
        """What both have to say."""
        left = self.first.remaining(m)
        if left != m and (self.then.needs_losses or self.then.needs_clients):
            raise ConfigError(
                f"{self.first.label} leaves updates that no single client sent, so {self.then.label} can't follow it; "
                f"put {self.then.label} first, or leave one of them out"
            )
        return self.first.check(m, f) + self.then.check(left, min(f, left))


def reported(losses: Tensor | None, m: int) -> Tensor:
    """The losses that `m` clients reported, float64 of shape (m,).

    Raises:
        DataError: if there is none, or not one finite number per update.
    """
    if losses is None or losses.shape != (m,) or not bool(losses.isfinite().all()):
        given = "none" if losses is None else f"{losses.tolist()}"
        raise DataError(f"the rule needs one finite loss for each of {m} updates and got {given}; report the losses")
    return losses.double()
