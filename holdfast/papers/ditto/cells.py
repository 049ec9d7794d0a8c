"""What the cells of Ditto's tables compute: federations, and how every model of theirs fares on benign clients.

Personal models never feed back, so one federation gives the shared model, local models, Ditto with every lambda and
fine-tuning at once. A row of a table that is printed at its best setting is a choice between models, of one federation
or of several, by accuracy on the validation data of benign clients. The witness of golden cells is told the weights of
the shared model and of every client's personal ones, and their losses.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.data import FEDERATIONS, data_root
from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData
from holdfast.federated.aggregation import AGGREGATORS, Mean, aggregator_names, build_aggregator
from holdfast.federated.attacks import ATTACKS
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.engine.executors import make_executor
from holdfast.federated.expectation import Expectation
from holdfast.federated.federation import federate
from holdfast.federated.metrics.client_report import ClientReport, benign_of
from holdfast.federated.objectives import OBJECTIVES, FedAvg
from holdfast.federated.personalization import PERSONALIZATION, Personalizer
from holdfast.federated.result import SHARED, FederationResult
from holdfast.federated.server.optimizers import SERVER_OPTIMIZERS
from holdfast.federated.server.privacy import ClientPrivacy
from holdfast.federated.settings import Rounds
from holdfast.models.registry import build
from holdfast.papers.engine.pins import options, pinned
from holdfast.papers.engine.witness import tell
from holdfast.primitives.memory import keep_freed_memory

#: The numbers that are kept of each model, see `ClientReport`.
KEPT = ("pooled", "mean", "std", "worst_tenth", "loss_std")

_LARGEST_LOSS = 1e12


def run_federations(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Run one federation, or several that differ by an option, and report the rows of a table.

    Args:
        settings: ``data`` (name and options), ``data_by_seed`` (whether the seed draws the data too), ``task`` (the
            clients' own by default; ``margin`` makes two classes signs, as Vehicle's are), ``model``, ``rounds``
            (fields of `Rounds`), and where wanted ``objective``, ``aggregator``, ``threat`` (name and options each; of
            a threat also its ``ratio``), ``server_optimizer`` (likewise), ``privacy`` (its options; the noise follows
            from the seed) and ``personalize`` (a list of names and options). Each entry of ``runs`` replaces some of
            these for a federation of its own. ``rows`` has for each row the labels of the models it
            may be; between several the best is taken, ``by`` validation or test.
        seed: of the initial model, of who is malicious, and of every draw.

    Returns:
        ``ROW/pooled``, ``mean``, ``std``, ``worst_tenth`` and ``loss_std`` over benign clients; ``coverage``, the share
        of benign clients that took part; ``dropped``, updates that were not finite; ``diverged``, how many federations
        ended with a shared model that had to be frozen. With a choice also ``ROW/chosen``, which of the models it was.
        With privacy also ``epsilon`` and ``noise_multiplier``.
    """
    keep_freed_memory()
    clients = _clients(json.dumps(settings["data"]), data_root(None), seed if settings["data_by_seed"] else 0)
    if "task" in settings:
        clients = replace(clients, task=settings["task"])
    candidates: dict[str, list[tuple[float, ClientReport]]] = {row: [] for row in settings["rows"]}
    metrics: dict[str, float] = {"dropped": 0.0, "diverged": 0.0}
    for changes in settings.get("runs") or [{}]:
        outcome = _federate(clients, {**settings, **changes}, seed)
        _tell_models(outcome)
        benign = benign_of(outcome.malicious, len(clients))
        metrics["coverage"] = float((outcome.joined[benign] > 0).double().mean())
        metrics["dropped"] += outcome.dropped
        metrics["diverged"] += outcome.diverged_at is not None
        if outcome.privacy is not None:
            metrics |= {"epsilon": outcome.privacy.epsilon, "noise_multiplier": outcome.privacy.noise_multiplier}
        for row, labels in settings["rows"].items():
            alone = len(labels) == 1 and "runs" not in settings
            for label in labels:
                report = outcome.reports[label]
                score = 0.0 if alone else _score(outcome, label, report, settings.get("by", "validation"))
                candidates[row].append((score, report))
    for row, models in candidates.items():
        place = max(range(len(models)), key=lambda i: models[i][0])
        metrics |= {f"{row}/{name}": _finite(getattr(models[place][1], name)) for name in KEPT}
        if len(models) > 1:
            metrics[f"{row}/chosen"] = float(place)
    return metrics


@lru_cache(maxsize=1)
def _clients(data: str, root: Path, seed: int) -> Clients:
    """A federated data set, kept for the next cell of the same process: reading one may take as long as training."""
    return pinned_federation(json.loads(data)).load(root, seed)


def _federate(clients: Clients, settings: Mapping[str, Any], seed: int) -> FederationResult:
    parts = build_parts(settings, seed)
    model = build(settings["model"], clients.input_shape, clients.classes, seed=seed, weights=None)
    log = logging.getLogger("holdfast.federated")
    level = log.level
    log.setLevel(logging.ERROR)  # rules past their breakdown point are what the tables are about
    try:
        return federate(clients, model, **parts)
    finally:
        log.setLevel(level)


def pinned_federation(data: Mapping[str, Any]) -> FederatedData:
    """A federated data set, with every option that is not given as it is pinned; a pooled one is dealt out.

    Args:
        data: its ``name`` and options.
    """
    name, given = _named(data)
    if name not in FEDERATIONS:
        name, given = "partitioned", {"source": name, **given}
    return pinned(FEDERATIONS[name], **given)


def build_parts(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What `federate` takes besides clients and model; names and options that don't exist are refused here.

    Args:
        settings: as for `run_federations`.
        seed: as for `run_federations`.
    """
    pinned_federation(settings["data"])
    objective, given = _named(settings.get("objective") or {"name": FedAvg.name})
    aggregator, rule = _named(settings.get("aggregator") or {"name": Mean.name})
    parts: dict[str, Any] = {
        "settings": pinned(Rounds, **settings["rounds"], seed=seed),
        "objective": pinned(OBJECTIVES.find(objective), **given),
        "aggregator": build_aggregator(
            aggregator, {name: options(AGGREGATORS[name], rule) for name in aggregator_names(aggregator)}
        ),
    }
    if chosen := settings.get("threat"):
        name, given = _named(chosen)
        ratio = given.pop("ratio")
        parts["threat"] = pinned(Threat, attack=pinned(ATTACKS.find(name), **given), ratio=ratio)
    if moved := settings.get("server_optimizer"):
        name, given = _named(moved)
        parts["server_optimizer"] = pinned(SERVER_OPTIMIZERS.find(name), **given)
    if (hidden := settings.get("privacy")) is not None:
        parts["privacy"] = pinned(ClientPrivacy, **hidden, noise_seed=seed)
    parts["expect_malicious"] = pinned(Expectation)
    parts["personalize"] = _personalizers(settings.get("personalize", ()))
    return parts


def _personalizers(chosen: Sequence[Mapping[str, Any]]) -> list[Personalizer]:
    methods = []
    for each in chosen:
        name, given = _named(each)
        methods.append(pinned(PERSONALIZATION.find(name), **given))
    return methods


def _named(chosen: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A name and options; lists of JSON become tuples again."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in chosen.items() if key != "name"}
    return chosen["name"], given


def _score(outcome: FederationResult, label: str, report: ClientReport, by: str) -> float:
    """Mean accuracy over benign clients, by which models are chosen."""
    if by == "test":
        return report.mean
    executor = make_executor(outcome.runtime, outcome.choice)
    scores = executor.score_all("validation", outcome.weights, None if label == SHARED else label)
    return replace(report, scores=scores).mean


@dataclass(frozen=True)
class _PersonalModels:
    """Every client's personal model, read only when the witness asks: at the paper's scale they take gigabytes."""

    outcome: FederationResult
    label: str

    def state_dict(self) -> dict[str, Tensor]:
        """The models, (clients, parameters), under the method's name."""
        runtime, shared = self.outcome.runtime, self.outcome.weights
        return {self.label: runtime.personal(self.label, torch.arange(len(runtime.clients)), shared)}


def _tell_models(outcome: FederationResult) -> None:
    """The weights of all models of a federation, and their mean loss over benign clients."""
    tell("weights", outcome.weights)
    for label, report in outcome.reports.items():
        tell(f"{label}/loss", report.loss)
        if label != SHARED:
            tell(f"{label}/weights", _PersonalModels(outcome, label))


def _finite(value: float) -> float:
    """Losses of a wrecked model have no bound; results files have."""
    return min(value, _LARGEST_LOSS) if math.isfinite(value) else _LARGEST_LOSS
