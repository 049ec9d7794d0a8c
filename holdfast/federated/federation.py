"""The server: rounds of selecting, training, attacking, combining, and the report on every client.

`federate` is the whole of a simulated federation. Clients' work is behind an executor, what they send passes the
attack, then the guard, then the objective with its aggregator. Personal models never feed back: the shared model of
Ditto is that of the method underneath, to the bit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.clients.clients import Clients
from holdfast.errors import ConfigError, Interrupted
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.engine.criterion import PerExample
from holdfast.federated.engine.executors import Executor, ExecutorChoice, choose, make_executor
from holdfast.federated.engine.selection import select
from holdfast.federated.engine.state import State
from holdfast.federated.expectation import Expectation
from holdfast.federated.metrics.client_report import ClientReport, benign_of
from holdfast.federated.metrics.divergence import Divergence, divergence_of
from holdfast.federated.metrics.scoring import ClientScores
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization.base import Personalizer, PostHocPersonalizer
from holdfast.federated.personalization.ditto.ditto import Ditto
from holdfast.federated.personalization.factory import as_before_starts
from holdfast.federated.preparation import PreparedFederation, prepare
from holdfast.federated.result import SHARED, FederationResult
from holdfast.federated.run_files import history_of
from holdfast.federated.server.optimizers import Moments, ServerOptimizer
from holdfast.federated.server.privacy import KEY, ClientPrivacy, PrivacySpent
from holdfast.federated.settings import Rounds
from holdfast.training.events import Event, Listener
from holdfast.training.interruption import interruptions
from holdfast.training.run import Run, understanding

_log = logging.getLogger(__name__)

#: What a server optimizer remembers is kept in the server's state under names that begin so.
_MOMENTS = "server-optimizer/"


def federate(
    clients: Clients,
    model: nn.Module,
    settings: Rounds | None = None,
    *,
    objective: FederatedObjective | None = None,
    aggregator: Aggregator | None = None,
    threat: Threat | None = None,
    personalize: Sequence[Personalizer] = (),
    expect_malicious: Expectation | float | None = None,
    server_optimizer: ServerOptimizer | None = None,
    privacy: ClientPrivacy | None = None,
    loss: PerExample | None = None,
    score: PerExample | None = None,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
) -> FederationResult:
    """Simulate a federation.

    Args:
        clients: the data.
        model: the network, with the weights to start from.
        settings: rounds, cohort, local work, executor, seed.
        objective: what the shared model is trained for; FedAvg by default.
        aggregator: how the server combines what clients send; the mean by default.
        threat: an attack, where there is one.
        personalize: personalization methods; those trained alongside and post-hoc share one pass over the rounds.
        expect_malicious: how many malicious clients the server defends itself against: a share of the federation, a
            number of clients, or an `Expectation`; the share of `threat` by default.
        server_optimizer: how the server's model moves by what is combined, such as FedAdam; by default it is added.
        privacy: hides every client in noise; the result says what was spent.
        loss: ``loss(outputs, targets)`` of each example, shape (n,), in place of the task's; it is the user's own, so a
            resumed run must be given the same.
        score: ``score(outputs, targets)`` of each example, higher is better, in place of accuracy in reports; with a
            loss and no score, reports have the loss.
        run: a run directory; the state is saved in it, and a federation that was killed continues from there.
        listeners: told what happens.

    Returns:
        The models and the reports.

    Raises:
        ConfigError: if methods don't go together, or a setting can't work.
        DataError: if a client has no training data.
        FederationError: if a worker fails; the message names clients and round.
    """
    prepared = prepare(
        clients,
        model,
        settings,
        objective=objective,
        aggregator=aggregator,
        threat=threat,
        personalize=personalize,
        expect_malicious=expect_malicious,
        server_optimizer=server_optimizer,
        privacy=privacy,
        loss=loss,
        score=score,
    )
    return run_federation(prepared, run=run, listeners=listeners)


def run_federation(
    prepared: PreparedFederation, *, run: Run | None = None, listeners: Sequence[Listener] = ()
) -> FederationResult:
    """Simulate a federation that `prepare` has checked; the rest is as of `federate`."""
    if run is not None:
        run.lock()
    try:
        return Federation(prepared, run).run_rounds(listeners)
    finally:
        if run is not None:
            run.unlock()


class Federation:
    """A federation that is under way; `federate` is the usual way in.

    Args:
        prepared: what it runs with.
        run: a run directory, if the state is to be saved.
    """

    def __init__(self, prepared: PreparedFederation, run: Run | None) -> None:
        saved = run.load_checkpoint() if run is not None and run.has_checkpoint() else None
        if saved is not None and "starts" not in saved:
            prepared = replace(prepared, personalizers=as_before_starts(prepared.personalizers))
        self.prepared, self.run = prepared, run
        self.objective, self.aggregator, self.threat = prepared.objective, prepared.aggregator, prepared.threat
        self.settings, self.network, self.f = prepared.settings, prepared.network, prepared.f
        self.malicious, self.personalizers = prepared.malicious, prepared.personalizers
        self.optimizer, self.privacy = prepared.server_optimizer, prepared.privacy
        clients = prepared.clients
        self.benign, self.sizes = benign_of(self.malicious, len(clients)), clients.train.counts
        self.runtime = prepared.runtime(self._personal_folder())
        self.state = State(
            self.network.initial.clone(),
            self._on_device(self._remembered_first(len(clients))),
            torch.zeros(len(clients), dtype=torch.int64),
            torch.zeros(len(clients), dtype=torch.int64),
        )
        self.choice: ExecutorChoice | None = None
        if saved is not None and run is not None:
            with understanding(run.path):
                self._restore(saved)
        if self.choice is None:
            self.choice = choose(
                self.settings.executor, self.runtime.training, lambda trial: prepared.runtime(settings=trial)
            )

    def _remembered_first(self, clients: int) -> dict[str, Tensor]:
        """What the server remembers before the first round."""
        begun = self.objective.begin_with(self.aggregator, clients, self.network.size)
        if self.optimizer is not None:
            begun |= {_MOMENTS + name: value for name, value in self.optimizer.begin(self.network.trainable).items()}
        return begun if self.privacy is None else begun | self.privacy.begin()

    # ---------------------------------------------------------------------------------------------- rounds

    def run_rounds(self, listeners: Sequence[Listener] = ()) -> FederationResult:
        """Go on until the last round, tune, and report."""
        assert self.choice is not None
        listening: list[Listener] = [*listeners]
        if self.run is not None:
            listening.append(self.run.log)
        began, saved, before = time.monotonic(), time.monotonic(), self.state.seconds
        executor = self._executor()
        try:
            _tell(
                listening,
                "start",
                self.state.number,
                {"rounds": self.settings.rounds, "executor": self.choice.name, "chunk": self.choice.chunk},
            )
            while self.state.number < self.settings.rounds:
                self._round(executor)
                self._keep_early()
                if self._is_evaluated(self.state.number):
                    self._evaluate(executor, listening)
                elif listening:
                    _tell(listening, "step", self.state.number, {})
                self.state.seconds = before + time.monotonic() - began
                asked = interruptions.requested()
                if self.run is not None and (asked or time.monotonic() - saved > self.settings.checkpoint_seconds):
                    self._save(self.run)
                    saved = time.monotonic()
                if asked is not None and self.run is not None:
                    raise Interrupted(asked)
            if self.run is not None:
                self._save(self.run)
            for method in self.personalizers:
                if isinstance(method, PostHocPersonalizer):
                    start = self._start_of(method)
                    chosen = method.choose_hyperparameters(executor, start)
                    self.runtime.post_hoc[method.label] = chosen
                    executor.personalize_all(chosen, start)
            self.state.seconds = before + time.monotonic() - began
            if self.run is not None:
                self._save(self.run)
            reports = {label: self._report(executor, label) for label in self._labels()}
            state = self.state
            state.history.append(
                {"round": state.number, **{label: report.summary() for label, report in reports.items()}}
            )
            divergence = self._divergence(executor, reports[SHARED].loss)
        finally:
            executor.close()
        outcome = self._outcome(reports, divergence)
        _tell(listening, "end", self.state.number, {label: report.summary() for label, report in reports.items()})
        return outcome

    def _executor(self) -> Executor:
        """What runs the clients."""
        assert self.choice is not None
        return make_executor(self.runtime, self.choice)

    def _round(self, executor: Executor) -> None:
        """One round: select, train, attack, guard, combine."""
        state = self.state
        chosen = select(self.settings, state.number, self.sizes, ~self.benign, self.secret)
        updates = state.weights.new_empty(0, self.runtime.message)
        losses = torch.empty(0, dtype=torch.float64)
        if len(chosen):
            updates, losses = executor.round(state.number, chosen, state.drawn, self._message())
            chosen = executor.joined(chosen)
        if not len(chosen) and self.privacy is None:
            state.number += 1
            return
        if self.threat is not None and len(chosen):
            # Attacks draw on the host, so that they are the same on every device.
            forged = self.threat.attack.send(
                updates.cpu(),
                ~self.benign[chosen],
                clients=chosen,
                seed=self.settings.seed,
                number=state.number,
                defence=lambda sent: self._effect(sent.to(updates.device), losses, chosen).cpu(),
            )
            updates = forged.to(updates.device)
        state.drawn[chosen] += self.runtime.draws(chosen)
        state.joined[chosen] += 1
        self._combine(chosen, updates, losses)
        state.number += 1

    def _combine(self, chosen: Tensor, updates: Tensor, losses: Tensor) -> None:
        state = self.state
        finite = _finite_rows(updates).cpu() & losses.isfinite()
        if not finite.all():
            bad = chosen[~finite].tolist()
            state.dropped += len(bad)
            _log.warning("round %d: updates of clients %s are not finite and were dropped", state.number + 1, bad)
        if state.diverged_at is not None or not (finite.any() or self.privacy is not None):
            return
        # An update that is not finite was one of the attackers' at best: so many fewer are left to expect.
        f = max(self.f - int((~finite).sum()), 0)
        if not finite.all():
            updates, losses, chosen = updates[finite], losses[finite], chosen[finite]
        step, server = self._step(updates, losses, chosen, f)
        step, server = self._moved(self._hidden(step), server)
        weights = state.weights + step
        self.network.repair_statistics(weights)
        if weights.isfinite().all():
            state.weights, state.server = weights, server
        else:
            state.diverged_at = state.number
            _log.warning("round %d: the shared model is no longer finite; it is kept as it was", state.number + 1)

    def _step(self, updates: Tensor, losses: Tensor, chosen: Tensor, f: int) -> tuple[Tensor, dict[str, Tensor]]:
        """What the server combines these updates to, and what it remembers, if they arrive."""
        number = self.state.number
        if self.privacy is not None:
            return self.privacy.mean(updates, self.settings.cohort), self.state.server
        return self.objective.combine(
            updates,
            losses.to(updates.device),
            cohort=chosen,
            aggregator=self.aggregator,
            f=f,
            state=self.state.server,
            learning_rate=self.settings.decay(number) * self.settings.learning_rate,
            seed=self.settings.seed,
            number=number,
        )

    def _effect(self, updates: Tensor, losses: Tensor, chosen: Tensor) -> Tensor:
        """All that the server's next message would change by: what an attacker that knows the rule looks at."""
        step, server = self._step(updates, losses, chosen, self.f)
        if self.objective.second is None:
            return step
        change = self.objective.beside(server) - self.objective.beside(self.state.server)
        return torch.cat([step, change.to(step)])

    def _hidden(self, step: Tensor) -> Tensor:
        """The step with the noise that hides clients, drawn on the host."""
        if self.privacy is None:
            return step
        state, clients = self.state, len(self.sizes)
        noise = self.privacy.noise(len(step), self.settings, clients, state.server, state.number)
        return (step.double() + noise.to(step.device)).to(step.dtype)

    def _moved(self, step: Tensor, server: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The step of the server's optimizer, where there is one, and what it remembers."""
        if self.optimizer is None:
            return step, server
        moments: Moments = {
            name.removeprefix(_MOMENTS): value for name, value in server.items() if name.startswith(_MOMENTS)
        }
        parameters = torch.arange(len(step), device=step.device) < self.network.trainable
        step, moments = self.optimizer.step(step, moments, parameters)
        return step, {**server, **{_MOMENTS + name: value for name, value in moments.items()}}

    def _message(self) -> Tensor:
        """What clients receive: the model, and a second vector behind it where there is one."""
        state = self.state
        if self.objective.second is None:
            return state.weights
        return torch.cat([state.weights, self.objective.beside(state.server).to(state.weights)])

    @property
    def secret(self) -> int | None:
        """What clients are drawn by where nobody may know who was; None is by the seed."""
        return None if self.privacy is None else int(self.state.server[KEY])

    # ---------------------------------------------------------------------------------------------- reports

    def _output(self) -> Tensor:
        return self.objective.output(self.state.weights, self.state.server)

    def _keep_early(self) -> None:
        """Keep the shared model as it is now, where some method starts from it."""
        if any(method.starts_after == self.state.number for method in self.runtime.post_hoc.values()):
            self.state.early[str(self.state.number)] = self._output().clone()

    def _start_of(self, method: PostHocPersonalizer) -> Tensor:
        """The shared model that a method starts from."""
        return self._output() if method.starts_after is None else self.state.early[str(method.starts_after)]

    def _labels(self) -> list[str]:
        return [SHARED, *(method.label for method in self.personalizers)]

    def _is_evaluated(self, number: int) -> bool:
        every = self.settings.evaluate_every
        return every > 0 and number % every == 0 and number < self.settings.rounds

    def _report(self, executor: Executor, label: str) -> ClientReport:
        scores: ClientScores = executor.score_all("test", self._output(), None if label == SHARED else label)
        return ClientReport.of(scores, self.benign, self.network.criterion, self.prepared.clients.test)

    def _evaluate(self, executor: Executor, listening: Sequence[Listener]) -> None:
        after = {method.label for method in self.personalizers if isinstance(method, PostHocPersonalizer)}
        summaries = {label: self._report(executor, label).summary() for label in self._labels() if label not in after}
        self.state.history.append({"round": self.state.number, **summaries})
        _tell(listening, "epoch", self.state.number, summaries)

    def _divergence(self, executor: Executor, loss: float) -> Divergence | None:
        """Whether the shared model is worth nothing, and what to do about it."""
        if any(not method.shares_whole_model for method in self.runtime.joint):
            return None  # it is no model by itself

        def initial_loss() -> float:
            return ClientReport(executor.score_all("test", self.network.initial, None), self.benign).loss

        remedy = "lower the learning rate"
        if self.prepared.expected.overwhelms(self.aggregator) or (self.threat is not None and not self.f):
            remedy = "combine updates by a rule that withstands the attackers, such as the median, and expect them"
        history = self.state.history
        found = divergence_of(loss, self.prepared.clients, initial_loss, history, remedy)
        if found is not None:
            _log.warning(found.sentence())
        return found

    def _outcome(self, reports: dict[str, ClientReport], divergence: Divergence | None) -> FederationResult:
        state = self.state
        assert self.choice is not None
        messages = int(state.joined.sum())
        model = self.network.initial.element_size() * self.runtime.message
        return FederationResult(
            reports=reports,
            weights=self._output(),
            network=self.network,
            runtime=self.runtime,
            malicious=self.malicious,
            expected=self.prepared.expected,
            history=state.history,
            joined=state.joined,
            dropped=state.dropped,
            faults=state.faults,
            diverged_at=state.diverged_at,
            divergence=divergence,
            bytes_up=messages * (model + 8 * self.prepared.needs_losses),
            bytes_down=messages * model,
            seconds=state.seconds,
            choice=self.choice,
            privacy=self.spent(),
        )

    def spent(self) -> PrivacySpent | None:
        """What the rounds so far have spent of clients' privacy, where they are hidden."""
        return None if self.privacy is None else self.privacy.spent(self.settings, len(self.sizes), self.state.number)

    # ---------------------------------------------------------------------------------------------- before and between

    def _personal_folder(self) -> Path | None:
        """Where personal models are kept; None is in temporary files."""
        if self.run is None:
            return None
        folder = self.run.path / "personal"
        folder.mkdir(exist_ok=True)
        return folder

    def _on_device(self, server: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the objective remembers, beside the updates."""
        return {name: value.to(self.network.device) for name, value in server.items()}

    def _save(self, run: Run) -> None:
        """Between rounds only: in a round some personal models are ahead of the rest."""
        assert self.choice is not None
        stores = {label: store.state_dict() for label, store in self.runtime.stores.items()}
        starts = {method.label: method.start for method in self.personalizers if isinstance(method, Ditto)}
        kept = {"stores": stores, "starts": starts, "choice": {"name": self.choice.name, "chunk": self.choice.chunk}}
        run.save_checkpoint({**self.state.as_dict(), **kept, "metrics": run.metrics_mark()})

    def _restore(self, saved: dict[str, Any]) -> None:
        assert self.run is not None
        self.state = self.state.resumed(saved)
        self.state.weights = self.state.weights.to(self.network.device)
        self.state.server = self._on_device(self.state.server)
        if missing := sorted(self.runtime.stores.keys() - saved["stores"].keys()):
            raise ConfigError(
                f"the run at {self.run.path} has no personal models {missing[0]!r}, it was started with "
                f"{', '.join(saved['stores']) or 'none'}; give --personalize as it was, or start a new run"
            )
        for label, store in self.runtime.stores.items():
            store.load_state_dict(saved["stores"][label])
            store.check()
        self.choice = ExecutorChoice(**saved["choice"])
        self.run.cut_metrics(saved["metrics"])
        if "history" not in saved:
            self.state.history = history_of(self.run.metrics())


def _finite_rows(updates: Tensor) -> Tensor:
    """Which rows have finite entries only, bool; a row whose sum is finite needs no second look."""
    finite = updates.sum(dim=1).isfinite()
    doubtful = (~finite).nonzero().flatten()
    finite[doubtful] = updates[doubtful].isfinite().all(dim=1)
    return finite


def _tell(listeners: Sequence[Listener], kind: Any, number: int, values: dict[str, Any]) -> None:
    for listener in listeners:
        listener(Event(kind, number, number, values))
