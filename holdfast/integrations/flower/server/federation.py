"""The server of a federation on Flower: holdfast's own, without data, with an executor that asks nodes.

Attack, guard, objective, aggregator, checkpoints and reports are those of the simulator, so with the same seed and
configuration the shared model is the simulator's. Attacks on updates (A2, A3 and the like) are rehearsed: what
malicious clients would send is put in its place when it arrives, as in the simulator. Labels (A1) are poisoned at the
nodes.
"""

from __future__ import annotations

import secrets
from collections import Counter
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
from holdfast.federated.result import FederationResult
from holdfast.files import write_atomically
from holdfast.integrations.flower.server.exchange import ClientFacts, Exchange
from holdfast.integrations.flower.server.executor import FlowerExecutor
from holdfast.integrations.flower.settings import Fault, FlowerSettings
from holdfast.training.events import Listener
from holdfast.training.run import Run


def federate_on_flower(
    grid: Any,
    blueprint: Blueprint,
    settings: FlowerSettings,
    *,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
) -> FederationResult:
    """Run a federation on the nodes of a Flower run.

    Args:
        grid: of the run.
        blueprint: what the federation is built from; the nodes have the same.
        settings: timeout, minimum and what to do when few answer.
        run: a run directory; the state is saved in it after every round, and a federation that was stopped continues.
        listeners: told what happens.

    Returns:
        The shared model and the reports. Personal models stay at the nodes.

    Raises:
        ConfigError: if methods don't go together, or can't run where nobody sees all clients.
        FederationError: if nodes don't appear, or too few clients answer and that is a failure.
    """
    refuse_methods_that_see_all(blueprint.personalize)
    if run is not None:
        run.lock()
    try:
        exchange = Exchange(grid, settings, _name_of(run))
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
        settings = replace(blueprint.settings, executor="serial", checkpoint_seconds=0.0)
        super().__init__(blueprint.prepare(self.clients, settings), run)
        self.choice = ExecutorChoice("flower", exchange.settings.nodes)

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
        """Refuse to combine so few that the rule no longer stands as many malicious ones as are expected."""
        self.aggregator.check(answers, min(self.f, answers))
        before, now = self.aggregator.stands(self.settings.cohort), self.aggregator.stands(answers)
        if now is not None and before is not None and now < self.f <= before:
            raise ConfigError(f"{self.aggregator.label} stands {now} malicious among {answers}, expected are {self.f}")

    def _outcome(self, reports: Any, divergence: Any) -> FederationResult:
        self._take_faults()
        return super()._outcome(reports, divergence)

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

    Ids without a gap from 0 on are clients; others are left out, and so are those whose data is not like most.

    Raises:
        FederationError: if there is no client 0.
    """
    total = 0
    while total in exchange.facts:
        total += 1
    if not total:
        why = f" (the last trouble: {exchange.faults[-1].reason})" if exchange.faults else ""
        raise FederationError(f"no node has client 0{why}; give every client an id, from 0 on, in --node-config")
    for client in sorted(client for client in exchange.facts if client > total):
        exchange.expel(client, f"ids go from 0 on without a gap, and there is no client {total}")
    facts = [exchange.facts[client] for client in range(total)]
    usual: ClientFacts = Counter(replace(each, train=1, validation=0, test=0) for each in facts).most_common(1)[0][0]
    for client, each in enumerate(facts):
        if (each.classes, each.task, each.shape) != (usual.classes, usual.task, usual.shape):
            exchange.expel(client, f"its data is {each.shape} with {each.classes} classes, others' is not")
    parts = {name: _told(facts, name, usual.shape) for name in ("train", "validation", "test")}
    if usual.task not in ("classes", "margin"):
        raise FederationError(f"nodes have the task {usual.task!r}, which runs in the simulator only so far")
    return Clients(**parts, classes=usual.classes, task=usual.task)  # type: ignore[arg-type]


def _told(facts: Sequence[ClientFacts], name: str, shape: tuple[int, ...]) -> ReportedPart:
    number = len(facts)
    inputs = torch.zeros((1,) * (len(shape) + 1)).expand(2 * number, *shape)
    reported = torch.tensor([getattr(each, name) for each in facts], dtype=torch.int64)
    return ReportedPart(inputs, torch.arange(2 * number) % 2, 2 * torch.arange(number + 1), reported=reported)


def _name_of(run: Run | None) -> str:
    """The federation's name, the same whenever its run is continued."""
    if run is None:
        return secrets.token_hex(16)
    file = run.path / "federation"
    if not file.exists():
        write_atomically(file, secrets.token_hex(16).encode())
    return file.read_text()
