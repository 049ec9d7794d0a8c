"""The server of a federation on Flower: holdfast's own, without data, with an executor that asks nodes.

Attack, guard, objective, aggregator, checkpoints and reports are those of the simulator, so with the same seed and
configuration the shared model is the simulator's. Attacks on updates (A2, A3 and the like) are rehearsed: what
malicious clients would send is put in its place when it arrives, as in the simulator. Labels (A1) are poisoned at the
nodes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.errors import ConfigError, FederationError
from holdfast.federated.blueprint import Blueprint
from holdfast.federated.engine.executors import Executor, ExecutorChoice
from holdfast.federated.federation import Federation
from holdfast.federated.personalization.base import Personalizer, PostHocPersonalizer
from holdfast.federated.result import SHARED, FederationResult
from holdfast.files import write_atomically
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.roster import Roster
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.executor import FlowerExecutor
from holdfast.integrations.flower.server.expecting import check_unchanged, expectation_of_nodes, roster_of
from holdfast.integrations.flower.server.members import ClientFacts, Members
from holdfast.integrations.flower.server.participation import participation, rounds_drawn
from holdfast.integrations.flower.settings import Fault, FlowerSettings
from holdfast.training.events import Listener
from holdfast.training.run import Run


def federate_on_flower(
    grid: Any,
    blueprint: Blueprint,
    settings: FlowerSettings,
    charter: Charter,
    *,
    roster: Roster | None = None,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
) -> FederationResult:
    """Run a federation on the nodes of a Flower run.

    Args:
        grid: of the run.
        blueprint: what the federation is built from; the nodes have the same.
        settings: timeout, minimum and what to do when few answer.
        charter: what the federation owns; the nodes compare their own with it.
        roster: who may take part; the file that the settings name by default.
        run: a run directory; the state is saved in it after every round, and a federation that was stopped continues.
        listeners: told what happens.

    Returns:
        The shared model and the reports. Personal models stay at the nodes.

    Raises:
        ConfigError: if methods don't go together, can't run where nobody sees all clients, there is no roster and
            nobody said that none is needed, or the run was started with another configuration.
        FederationError: if nodes don't appear, or too few clients answer and that is a failure.
    """
    refuse_methods_that_see_all(blueprint.personalize)
    refuse_late_answers(blueprint, settings)
    members = Members(roster or roster_of(settings), charter, settings.most_faults)
    blueprint = replace(blueprint, expectation=expectation_of_nodes(blueprint.expectation, settings, members.roster))
    if run is not None:
        run.lock()
    try:
        if run is not None:
            check_unchanged(run, blueprint.options, charter)
            members.keep_in(run.path)
        exchange = Exchange(grid, settings, _name_of(run), members)
        exchange.gather()
        return FlowerFederation(exchange, blueprint, run).run_rounds(listeners)
    finally:
        if run is not None:
            run.unlock()


def refuse_methods_that_see_all(methods: Sequence[Personalizer]) -> None:
    """Refuse what can't run where nobody sees all clients.

    Raises:
        ConfigError: if a method chooses something for all clients by looking at all of their models.
    """
    alone = PostHocPersonalizer.choose_hyperparameters
    for method in methods:
        if isinstance(method, PostHocPersonalizer) and type(method).choose_hyperparameters is not alone:
            raise ConfigError(
                f"{method.name} looks at all clients' personal models to choose what they share, and on Flower no "
                "one sees them; run it in the simulator, or take another method"
            )


def refuse_late_answers(blueprint: Blueprint, settings: FlowerSettings) -> None:
    """Refuse to weigh late answers where a round's sum is what counts.

    Raises:
        ConfigError: if clients are hidden in the noise of the round that drew them, or send changes that are added up.
    """
    if settings.late != "weigh":
        return
    if blueprint.privacy is not None:
        raise ConfigError(
            "privacy is accounted for updates of the round that drew their client, and --late weigh lets them count in "
            "another; use --late drop"
        )
    if blueprint.objective.second is not None:
        raise ConfigError(
            f"{blueprint.objective.name} adds up what clients send beside their updates, so a late answer can't be "
            "weighed less; use --late drop"
        )


class FlowerFederation(Federation):
    """A federation whose clients are elsewhere.

    Args:
        exchange: talks to the nodes, which have said whom they have.
        blueprint: what the federation is built from.
        run: a run directory, if the state is to be saved.
    """

    def __init__(self, exchange: Exchange, blueprint: Blueprint, run: Run | None) -> None:
        self.exchange = exchange
        self.clients = roll(exchange)
        model = blueprint.model(self.clients)
        if exchange.members.charter is not None:
            exchange.members.charter.check_model(model)
        settings = replace(blueprint.settings, executor="serial", checkpoint_seconds=0.0)
        super().__init__(blueprint.prepare(self.clients, settings, model=model), run)
        self.choice = ExecutorChoice("flower", exchange.settings.nodes)
        self._check_bytes(exchange.members)

    def _check_bytes(self, members: Members) -> None:
        """Refuse a federation whose honest replies are larger than the charter allows; others never are."""
        if members.charter is None or members.roster is None:
            return
        largest = min(members.roster.largest(1), self.settings.cohort)
        needs = largest * (self.runtime.message * self.network.initial.element_size() + 8)
        if needs > members.charter.most_bytes:
            raise ConfigError(
                f"the updates of {largest} clients of one node have {needs:,} bytes and the charter lets a node send "
                f"{members.charter.most_bytes:,}; lower --cohort, or write the charter for so many clients"
            )

    def _personal_folder(self) -> None:
        """Personal models are at the nodes, so nothing of them is kept in the run directory."""

    def _executor(self) -> Executor:
        return FlowerExecutor(self.runtime, self.exchange)

    def _round(self, executor: Executor) -> None:
        super()._round(executor)
        self._take_faults()

    def _combine(self, chosen: Tensor, updates: Tensor, losses: Tensor) -> None:
        """As ever, if the rule is defined for as few as have answered; the shared model stays as it is otherwise."""
        try:
            self._check_answers(len(chosen))
        except ConfigError as error:
            fault = Fault(self.state.number, tuple(chosen.tolist()), "skipped", f"the round changes nothing: {error}")
            self.exchange.faults.append(fault)
            return
        super()._combine(chosen, updates, losses)

    def _check_answers(self, answers: int) -> None:
        """Refuse to combine so few that the rule no longer withstands as many malicious ones as are expected."""
        if self.privacy is not None:
            return  # the sum of nobody is a sum, and gets its noise
        self.aggregator.check(answers, min(self.f, answers))
        before, now = self.aggregator.stands(self.settings.cohort), self.aggregator.stands(answers)
        if now is not None and before is not None and now < self.f <= before:
            raise ConfigError(
                f"{self.aggregator.label} withstands {now} malicious among {answers}, expected are {self.f}"
            )

    def _outcome(self, reports: Any, divergence: Any) -> FederationResult:
        self._take_faults()
        scores, state = reports[SHARED].scores, self.state
        drawn = rounds_drawn(self.settings, state.number, self.sizes, ~self.benign, self.secret)
        took_part = participation(drawn, state.joined, state.faults, scores.accuracy, scores.count > 0)
        return replace(super()._outcome(reports, divergence), participation=took_part)

    def _take_faults(self) -> None:
        """Move what went wrong into the state, so that it is saved and reported."""
        for fault in self.exchange.faults:
            self.state.faults.append(fault.as_dict())
            self.state.dropped += len(fault.clients) if fault.kind == "refused" else 0
        self.exchange.faults.clear()


@dataclass(frozen=True, eq=False)
class ReportedPart(ClientPart):
    """A part of clients' data of which only the numbers are known; two stand-ins per client are in it.

    Attributes:
        reported: how many examples each client says that it has, int64 of shape (clients,).
    """

    reported: Tensor | None = None

    @property
    def counts(self) -> Tensor:
        """What clients say."""
        assert self.reported is not None
        return self.reported

    def owners(self) -> Tensor:
        """Of the stand-ins."""
        return torch.arange(len(self)).repeat_interleave(2)


def roll(exchange: Exchange) -> Clients:
    """What the server knows of its clients: how many there are, how much data they have, and of what kind.

    With a roster that says how many there are; those that have not reported yet count for one example. Without, ids
    without a gap from 0 on are clients. Nobody counts for more examples than the roster allows.

    Raises:
        FederationError: if there is no client 0.
    """
    members = exchange.members
    total = 0 if members.roster is None else len(members.roster)
    while members.roster is None and total in members.facts:
        total += 1
    if not total or members.kind is None:
        why = f" (the last trouble: {exchange.faults[-1].reason})" if exchange.faults else ""
        raise FederationError(f"no node has client 0{why}; give every client an id, from 0 on, in --node-config")
    for client in sorted(client for client in members.facts if client >= total):
        exchange.ledger.expel(client, f"ids go from 0 on without a gap, and there is no client {total}")
    facts = [members.facts.get(client, ClientFacts(1, 0, 0)) for client in range(total)]
    kind = members.kind
    parts = {
        name: _told([min(getattr(each, name), members.cap(client)) for client, each in enumerate(facts)], kind.shape)
        for name in ("train", "validation", "test")
    }
    schema = None if members.charter is None else members.charter.read_schema()
    return Clients(**parts, classes=kind.classes, task=kind.task, schema=schema)  # type: ignore[arg-type]


def _told(counts: Sequence[int], shape: tuple[int, ...]) -> ReportedPart:
    number = len(counts)
    inputs = torch.zeros((1,) * (len(shape) + 1)).expand(2 * number, *shape)
    reported = torch.tensor(counts, dtype=torch.int64)
    return ReportedPart(inputs, torch.arange(2 * number) % 2, 2 * torch.arange(number + 1), reported=reported)


def _name_of(run: Run | None) -> str:
    """The federation's name, the same whenever its run is continued."""
    if run is None:
        return secrets.token_hex(16)
    file = run.path / "federation"
    if not file.exists():
        write_atomically(file, secrets.token_hex(16).encode())
    return file.read_text()
