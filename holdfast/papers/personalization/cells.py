"""What the cells of Personalized FL with spurious features compute: a shared model, then every method on top of it.

A cell trains one shared model and personalizes it with all methods, which see the same clients, batches and adversarial
examples. Methods are looked at at every checkpoint, so one run gives the end of training, the checkpoint that a method
would choose, and the curves of the figures.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data import load_federation
from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FEDERATIONS
from holdfast.data.sets.federated.environments import some_clients
from holdfast.federated.aggregation import AGGREGATORS, Aggregator, build_aggregator
from holdfast.federated.attacks import ATTACKS
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.expectation import Expectation
from holdfast.federated.federation import federate
from holdfast.federated.metrics.disparity import (
    EnvironmentReport,
    direct_success,
    environment_report,
    gradient_ratios,
    instability,
)
from holdfast.federated.objectives import FedAvg
from holdfast.federated.personalization import PERSONALIZATION, PostHocPersonalizer, Transferability, WithPolicy
from holdfast.federated.personalization.adversarial import Budget, search_budget
from holdfast.federated.personalization.early_stopping import ENOUGH, RECORDED, EarlyStoppedFineTuning
from holdfast.federated.post_hoc import Personalized, personalize
from holdfast.federated.result import FederationResult
from holdfast.federated.settings import Rounds
from holdfast.methods import METHODS
from holdfast.models.registry import build
from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.primitives.memory import keep_freed_memory
from holdfast.primitives.pgd import Pgd
from holdfast.theory.personalization.gaussian import accuracy
from holdfast.theory.personalization.simulation import Simulation, federate_gaussian, personalise_gaussian

#: What is told of the checkpoints of a golden cell.
_TOLD = ("loss", "loss_elsewhere", "transfer_loss", "distance")
#: Steps of clients over which their first gradients are compared, Figure 7.
_EARLY = 50
#: Between the seeds of repeated personalizations; the first has the federation's own.
_APART = 1_000


def run_personalization(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train a shared model, search the attack's budget, and personalize with every method.

    Args:
        settings: ``data`` (name and options), ``model``, ``weights`` where it starts from some, ``rounds`` (fields of
            `Rounds`), ``personal`` (fields that differ in personalization), ``clients`` (how many are personalized; 0
            is all), ``methods`` (by row: name, options, and ``counterexamples``, the share of them in its data; or
            ``policy``, options and epochs), and where wanted ``epsilon`` (no search), ``aggregator``, ``threat`` and
            ``repeats`` (how many times each method personalizes the shared model, with a seed of its own each; 1).
        seed: of everything.

    Returns:
        Means over the repeats. For each row ``ROW/accuracy``, ``elsewhere``, ``disparity``, ``worst``, ``average``,
        ``loss_disparity`` and ``transfer`` at the end, ``ROW/chosen_...`` at the checkpoint that each client chooses,
        ``ROW/atN_...`` at the N-th one; of the last models ``instability`` of their gradients and ``direct``, the
        success of attacks on them; ``global/...`` of the shared model; ``epsilon`` and ``success``.
    """
    keep_freed_memory()
    clients, outcome = train_shared(settings, seed)
    budget = find_budget(settings, outcome)
    metrics = {"epsilon": budget.epsilon, "success": budget.path[-1][1], "weak": float(budget.weak)}
    everybody = environment_report(outcome.runtime, outcome.weights, None)
    tell("shared", outcome.weights)
    tell("everybody", [everybody.loss, everybody.loss_elsewhere])
    tell("budget", [budget.epsilon, len(budget.path)])
    metrics |= {"everybody/accuracy": everybody.accuracy, "everybody/elsewhere": everybody.elsewhere}
    runs = [
        _personalized(settings, clients, outcome, budget.epsilon, (seed, seed + _APART * number))
        for number in range(settings.get("repeats", 1))
    ]
    return {**metrics, **{name: statistics.fmean(run[name] for run in runs) for name in runs[0]}}


def _personalized(
    settings: Mapping[str, Any], clients: Clients, outcome: FederationResult, epsilon: float, seeds: tuple[int, int]
) -> dict[str, float]:
    """The numbers of every method on top of a shared model.

    Args:
        settings: as `run_personalization` takes them.
        clients: of the federation.
        outcome: of the federation.
        epsilon: budget of the attack.
        seeds: of the data, and of what is random in personalization.
    """
    metrics: dict[str, float] = {}
    ids = evenly(clients, settings.get("clients") or len(clients))
    rounds = pinned(Rounds, **{**settings["rounds"], **settings.get("personal", {})}, seed=seeds[1])
    methods: Mapping[str, Mapping[str, Any]] = settings["methods"]
    for share in sorted({method.get("counterexamples", 0.0) for method in methods.values()}):
        data = some_clients(_load(settings, seeds[0], counterexamples=share) if share else clients, ids)
        rows = [row for row, method in methods.items() if method.get("counterexamples", 0.0) == share]
        post_hoc = [make_method(row, methods[row], epsilon) for row in rows]
        result = personalize(data, outcome.model(), rounds, post_hoc)
        if not share:
            own = environment_report(result.runtime, result.weights, None)
            metrics |= {f"global/{name}": value for name, value in _environments(own).items()}
        for row in rows:
            metrics |= {f"{row}/{name}": value for name, value in method_numbers(result, row).items()}
    return metrics


def train_shared(settings: Mapping[str, Any], seed: int) -> tuple[Clients, FederationResult]:
    """The clients, and the federation that trains their shared model."""
    clients = _load(settings, seed)
    model = build(settings["model"], clients.input_shape, clients.classes, seed=seed, weights=settings.get("weights"))
    parts: dict[str, Any] = {"objective": pinned(FedAvg), "aggregator": _aggregator(settings.get("aggregator", "mean"))}
    parts["expect_malicious"] = pinned(Expectation)
    if "threat" in settings:
        threat = settings["threat"]
        parts["threat"] = pinned(Threat, attack=pinned(ATTACKS.find(threat["name"])), ratio=threat["ratio"])
    rounds = pinned(Rounds, **settings["rounds"], seed=seed)
    return clients, pinned(federate, clients=clients, model=model, settings=rounds, **parts)


def _aggregator(name: str) -> Aggregator:
    return build_aggregator(name, {name: options(AGGREGATORS[name], {})})


def find_budget(settings: Mapping[str, Any], outcome: FederationResult) -> Budget:
    """The budget that is given, or the result of the search."""
    if "epsilon" in settings:
        return Budget(settings["epsilon"], ((settings["epsilon"], 0.0),), weak=False)
    return search_budget(outcome.runtime.training, outcome.weights, pinned(Pgd))


def evenly(clients: Clients, count: int) -> list[int]:
    """So many clients, the first ones of each environment in turn."""
    by_name: dict[str, list[int]] = {}
    for client in range(len(clients)):
        by_name.setdefault(clients.names[client] if clients.names else "", []).append(client)
    turns = [client for turn in itertools.zip_longest(*by_name.values()) for client in turn if client is not None]
    return sorted(turns[:count])


def make_method(row: str, method: Mapping[str, Any], epsilon: float) -> PostHocPersonalizer:
    """The method of a row, which keeps the end of training; checkpoints are chosen afterwards."""
    if "policy" in method:
        policy = pinned(METHODS[method["policy"]], **method["options"])
        return pinned(WithPolicy, policy=policy, epochs=method["epochs"], called=row)
    given = {**method.get("options", {}), "called": row, "keep": "last", "epsilon": epsilon}
    if method["name"] == Transferability.name:
        given["search"] = False
    made = pinned(PERSONALIZATION.find(method["name"]), **given)
    assert isinstance(made, EarlyStoppedFineTuning)
    return made


def method_numbers(result: Personalized, row: str) -> dict[str, float]:
    """Everything that is kept of a method."""
    runtime, method = result.runtime, result.runtime.post_hoc[row]
    tell(f"{row}/models", runtime.personal(row, torch.arange(len(runtime.clients)), result.weights))
    if not isinstance(method, EarlyStoppedFineTuning):
        report = environment_report(runtime, result.weights, row)
        tell(row, [report.loss, report.loss_elsewhere])
        return _environments(report)
    record = method.record(runtime.stores[row], runtime.training).double()
    chosen = record[torch.arange(len(record)), chosen_checkpoints(record, runtime.clients.validation.counts, method)]
    metrics = _of_record(record[:, -1], "")
    metrics |= _of_record(chosen, "chosen_")
    for number in range(method.checkpoints):
        metrics |= _of_record(record[:, number], f"at{number + 1}_")
    ratios = gradient_ratios(runtime, result.weights, row)
    metrics["instability"] = instability(ratios)
    metrics["direct"] = direct_success(runtime, result.weights, row, method.attack)
    if isinstance(method, Transferability):
        metrics |= {"adversarial": float(method.adversarial), "weights": float(method.weights)}
        tell(f"{row}/coefficients", [metrics["adversarial"], metrics["weights"]])
    tell(row, {name: record[:, :, RECORDED.index(name)].mean(0).tolist() for name in _TOLD})
    tell(f"{row}/ratios", [metrics["instability"], float(ratios.log().mean())])
    tell(f"{row}/direct", metrics["direct"])
    return metrics


def chosen_checkpoints(record: Tensor, validation: Tensor, method: EarlyStoppedFineTuning) -> Tensor:
    """The checkpoint that each client chooses by its validation data, as the method itself would.

    Args:
        record: what was recorded, shape (clients, checkpoints, quantities).
        validation: how many validation examples each client has; those with few take the one that suits all of them.
        method: scores a checkpoint.

    Returns:
        Shape (clients,); the earliest of equals.
    """
    accuracy, transferred = (record[:, :, RECORDED.index(name)] for name in ("validation", "validation_transfer"))
    scores = torch.tensor(
        [
            [method.score(*seen) for seen in zip(*each, strict=True)]
            for each in zip(accuracy.tolist(), transferred.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
    chosen = scores.argmax(1)
    few = validation < ENOUGH
    if few.any():
        chosen[few] = scores[few].nanmean(0).argmax()
    return chosen


def _load(settings: Mapping[str, Any], seed: int, **more: Any) -> Clients:
    data = {**settings["data"], **more}
    name = data.pop("name")
    return load_federation(name, seed=seed, **options(FEDERATIONS[name], data))


def _environments(report: EnvironmentReport) -> dict[str, float]:
    names = ("accuracy", "elsewhere", "disparity", "worst", "average", "loss_disparity")
    return {name: getattr(report, name) for name in names}


def _of_record(seen: Tensor, prefix: str) -> dict[str, float]:
    """Means over clients of one checkpoint each, shape (clients, quantities)."""
    mean = dict(zip(RECORDED, seen.nanmean(0).tolist(), strict=True))
    gaps = (seen[:, RECORDED.index("accuracy")] - seen[:, RECORDED.index("accuracy_elsewhere")]).abs()
    report = EnvironmentReport(
        mean["accuracy"], mean["accuracy_elsewhere"], mean["loss"], mean["loss_elsewhere"], float(gaps.mean())
    )
    numbers = {**_environments(report), "transfer": mean["transfer"], "validation": mean["validation"]}
    return {f"{prefix}{name}": value for name, value in numbers.items()}


def simulate_gaussian(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Gaussian environments: the shared model of a ``case``, or personal models with given coefficients.

    Args:
        settings: ``case`` and ``rounds``; or ``adversarial``, ``weights`` and ``clients``, so many of each sign.
        seed: of everything.

    Returns:
        ``spurious`` and ``real`` weight, averaged over the last 50 rounds, with the mean (``real_pull``) and the
        deviation (``real_noise``) of the gradients that clients see in their first steps; or the mean ``spurious``
        weight (absolute), its ``wobble`` (deviation over the last 40 steps) and the ``disparity`` of accuracy that goes
        with it.
    """
    world = pinned(Simulation)
    if "case" in settings:
        shared = federate_gaussian(settings["case"], settings["rounds"], seed, world)
        end, early = shared.weights[-50:].mean(0), shared.gradients[:_EARLY]
        tell("shared", [*shared.weights[-1], *end, *np.abs(shared.gradients).sum(0)])
        metrics = {}
        for place, name in enumerate(("real", "spurious")):
            metrics[name] = float(end[place])
            metrics[f"{name}_pull"] = float(abs(early[:, place].mean()))
            metrics[f"{name}_noise"] = float(early[:, place].std())
        return metrics
    ends, wobbles, gaps = [], [], []
    for sign in (1.0, -1.0):
        for client in range(settings["clients"]):
            path = pinned(
                personalise_gaussian,
                c=sign,
                seed=1000 * seed + client,
                adversarial=settings["adversarial"],
                weights=settings["weights"],
                simulation=world,
            ).weights
            tell("path", [*path[20], *np.abs(path).mean(0)])
            own = path[-40:].mean(0)
            ends.append(abs(own[1]))
            wobbles.append(path[-40:, 1].std())
            gaps.append(accuracy(own, sign) - accuracy(own, -sign))
    numbers = {"spurious": ends, "wobble": wobbles, "disparity": gaps}
    return {name: float(np.mean(each)) for name, each in numbers.items()}
