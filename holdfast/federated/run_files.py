"""What a finished federation leaves in its run directory, beside its checkpoint and its personal models.

::

    weights.safetensors   the shared model's state dict, under its own names
    results.json       the record: methods, settings, every number of every model, what was dropped, bytes, time
    clients.parquet    a row per client and model: benign, rounds it took part in, accuracy, loss, count, lambda
    adversarial.png    of methods that use them: test images, and below them their adversarial versions

Personal models stay in ``personal/``, a row per client; `holdfast.federated.saved_models` gives them as state dicts.
They are written when the federation is over, the record last: its presence says that the run is finished. All of it but
the time follows from the state, so a run that was killed and continued leaves the same.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks import Backdoor
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.checks import has_examples
from holdfast.federated.health import federation_health
from holdfast.federated.metrics.backdoor import backdoor_success
from holdfast.federated.metrics.client_report import benign_of
from holdfast.federated.metrics.environment_record import adaptation_of, adversarial_picture, environments_of
from holdfast.federated.metrics.personal_gain import Observed, PersonalGain
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization.base import Personalizer, PostHocPersonalizer
from holdfast.federated.personalization.ditto.adaptive import ENOUGH, AdaptiveDitto
from holdfast.federated.personalization.ditto.ditto import Ditto
from holdfast.federated.result import SHARED, FederationResult
from holdfast.federated.server.optimizers import ServerOptimizer
from holdfast.federated.settings import Rounds
from holdfast.files import write_atomically
from holdfast.training.model_card import LOOKED_AT, ModelCard, input_facts
from holdfast.training.run import Run

#: What ``results.json`` calls itself.
KIND = "federation"
#: Settings that never change a result: a run may be continued with others.
FREE = ("workers", "checkpoint_seconds")


@dataclass(frozen=True)
class FederationSpec:
    """What a federation was made of, for its record.

    Attributes:
        data: name of the data set.
        model: name of the model.
        settings: rounds, cohort, local work.
        objective: what the shared model was trained for.
        aggregator: how updates were combined.
        threat: who attacked, if somebody did.
        server_optimizer: how the server's model moved, where it wasn't by the aggregate itself.
    """

    data: str
    model: str
    settings: Rounds
    objective: FederatedObjective
    aggregator: Aggregator
    threat: Threat | None
    server_optimizer: ServerOptimizer | None = None


def save_outcome(run: Run, outcome: FederationResult, clients: Clients, spec: FederationSpec) -> None:
    """Write the shared model, ``clients.parquet`` and, last, ``results.json``.

    Args:
        run: the run directory.
        outcome: what came out.
        clients: the data, as it was before labels were poisoned.
        spec: what it was made of.
    """
    run.save_weights(outcome.model().state_dict(), card_of(clients, {"data": spec.data, "round": spec.settings.rounds}))
    buffer = io.BytesIO()
    pq.write_table(pa.table(client_table(outcome, clients)), buffer)
    write_atomically(run.path / "clients.parquet", buffer.getvalue())
    if (picture := adversarial_picture(outcome.runtime, outcome.weights)) is not None:
        write_atomically(run.path / "adversarial.png", picture)
    run.save_results(record(outcome, clients, spec))


def card_of(clients: Clients, made: Mapping[str, Any]) -> ModelCard:
    """What is known of a model of these clients; a server without data knows no range of the inputs.

    Args:
        clients: the data.
        made: where the model comes from.
    """
    inputs = clients.train.inputs[: LOOKED_AT if has_examples(clients) else 0]
    return ModelCard(input_facts(inputs), clients.class_names, task=clients.task, made=made)


def read_clients(run: Run) -> dict[str, list[Any]]:
    """The columns of ``clients.parquet``."""
    columns = run.table("clients.parquet", ("model", "accuracy", "loss", "lambda", "name", "benign", "joined", "count"))
    return {name: column.tolist() for name, column in columns.items()}


def history_of(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Evaluations so far, out of a federation's events.

    Where a run was continued, what came after the point it was continued from is left out.
    """
    entries: list[dict[str, Any]] = []
    for event in events:
        if event["event"] == "start":
            entries = [entry for entry in entries if entry["round"] <= event["epoch"]]
        elif event["event"] == "epoch":
            known = {key: value for key, value in event.items() if key not in ("event", "epoch", "step")}
            entries.append({"round": event["epoch"], **known})
    return entries


def client_table(outcome: FederationResult, clients: Clients) -> dict[str, list[Any]]:
    """A row per client and model, as columns; ``lambda`` is None for models without one."""
    number = len(clients)
    names = list(clients.names) or [str(client) for client in range(number)]
    columns: dict[str, list[Any]] = {}
    for label, report in outcome.reports.items():
        lambdas = lambdas_of(outcome, label)
        part: dict[str, list[Any]] = {
            **report.table(),
            "name": names,
            "model": [label] * number,
            "joined": outcome.joined.tolist(),
            "lambda": [None] * number if lambdas is None else [_number(value) for value in lambdas.tolist()],
        }
        columns = {key: columns.get(key, []) + part[key] for key in part}
    columns["lambda"] = pa.array(columns["lambda"], pa.float64())
    return columns


def lambdas_of(outcome: FederationResult, label: str) -> Tensor | None:
    """The pull towards the shared model of each client, float64 of shape (clients,), where the method has one.

    Where clients choose at every step it is what they chose most often; not a number for those that never chose.
    """
    method = _methods(outcome).get(label)
    if isinstance(method, AdaptiveDitto):
        chosen = method.chosen(outcome.runtime.stores[label], outcome.runtime.training)
        most = torch.tensor(method.lambdas, dtype=torch.float64)[chosen.argmax(1)]
        return torch.where(chosen.sum(1) > 0, most, torch.nan)
    strength = getattr(method, "lambda_", None)
    return None if strength is None else torch.full((len(outcome.joined),), float(strength), dtype=torch.float64)


def gains_of(outcome: FederationResult) -> dict[str, PersonalGain]:
    """The personal models of each method against the shared one, and what may be the reason where they are worse.

    Clients that never took part in a round have the shared model, so they are in no comparison of a method that is
    trained in rounds.
    """
    gains = {}
    for label, method in _methods(outcome).items():
        post_hoc = isinstance(method, PostHocPersonalizer)
        trained = torch.ones_like(outcome.joined, dtype=torch.bool) if post_hoc else outcome.joined > 0
        report, shared = outcome.reports[label], outcome.reports[SHARED]
        gain = PersonalGain.of(label, report, shared, trained, _observed(outcome, method))
        if gain is not None:
            gains[label] = gain
    return gains


def _observed(outcome: FederationResult, method: Personalizer) -> Observed:
    """What may explain why a method's models are worse than the shared one."""
    training, everybody = outcome.runtime.training, torch.arange(len(outcome.joined))
    rounds, validation = training.settings.rounds, training.clients.validation.counts
    if isinstance(method, PostHocPersonalizer):
        return Observed(training.post_hoc_steps(method.epochs, everybody), None, rounds, validation)
    ditto = method if isinstance(method, Ditto) else None
    per_round = ditto.steps if ditto is not None and ditto.steps else training.steps(everybody)
    choosing = method if isinstance(method, AdaptiveDitto) else None
    return Observed(
        outcome.joined * per_round,
        outcome.joined,
        rounds,
        validation,
        from_initial=ditto is not None and ditto.start == "initial",
        candidates=() if choosing is None else choosing.candidates,
        chosen=None if choosing is None else lambdas_of(outcome, method.label),
        enough=ENOUGH,
    )


def record(outcome: FederationResult, clients: Clients, spec: FederationSpec) -> dict[str, Any]:
    """Everything about a federation but the rows of its clients (Ditto spec 2.9)."""
    settings, threat = spec.settings, spec.threat
    return {
        "kind": KIND,
        "data": spec.data,
        "fingerprint": clients.fingerprint(),
        "clients": len(clients),
        "model": spec.model,
        "parameters": outcome.network.trainable,
        "objective": _described(spec.objective),
        "aggregator": {"name": spec.aggregator.label, **asdict(spec.aggregator)},
        "server_optimizer": None if spec.server_optimizer is None else _described(spec.server_optimizer),
        "privacy": None if outcome.privacy is None else outcome.privacy.record(),
        "attack": None if threat is None else _described(threat.attack),
        "malicious_ratio": 0.0 if threat is None else threat.ratio,
        "malicious": outcome.malicious.tolist(),
        "f": outcome.expected.f,
        "expected": outcome.expected.record(),
        "seed": settings.seed,
        "settings": _recorded(settings),
        "personalize": {
            label: {**_described(method), "lambdas": _histogram(lambdas_of(outcome, label), outcome)}
            for label, method in _methods(outcome).items()
        },
        "measure": next(iter(outcome.reports.values())).measure,
        "models": {label: report.summary() for label, report in outcome.reports.items()},
        "health": federation_health(outcome).to_json(),
        "gains": {label: gain.record() for label, gain in gains_of(outcome).items()},
        "environments": environments_of(outcome.runtime, outcome.weights, list(outcome.reports)),
        "adaptation": adaptation_of(outcome.runtime, outcome.weights),
        "backdoor": _backdoor(outcome, threat),
        "history": outcome.history,
        "dropped": outcome.dropped,
        "faults": list(outcome.faults),
        "participation": outcome.participation,
        "self_reported": outcome.choice.name == "flower",
        "diverged_at": outcome.diverged_at,
        "divergence": None if outcome.divergence is None else outcome.divergence.record(),
        "never_joined": int((outcome.joined == 0).sum()),
        "warnings": outcome.expected.check(spec.aggregator),
        "executor": {"name": outcome.choice.name, "chunk": outcome.choice.chunk},
        "bytes_up": outcome.bytes_up,
        "bytes_down": outcome.bytes_down,
        "seconds": outcome.seconds,
    }


def _backdoor(outcome: FederationResult, threat: Threat | None) -> dict[str, dict[str, float]]:
    """How often a backdoor works, by model; empty where none is rehearsed, or clients' data is elsewhere."""
    if threat is None or not isinstance(threat.attack, Backdoor) or outcome.choice.name == "flower":
        return {}
    benign = benign_of(outcome.malicious, len(outcome.joined))
    return backdoor_success(outcome.runtime, outcome.weights, list(outcome.reports), threat.attack, benign)


def _recorded(settings: Rounds) -> dict[str, Any]:
    """Settings that results depend on; the device where it is not the CPU, which records of older runs don't name."""
    left_out = {*FREE, "device"} if settings.device == "cpu" else set(FREE)
    return {name: value for name, value in asdict(settings).items() if name not in left_out}


def _methods(outcome: FederationResult) -> dict[str, Personalizer]:
    runtime = outcome.runtime
    methods: list[Personalizer] = [*runtime.alongside, *runtime.joint, *runtime.post_hoc.values()]
    return {method.label: method for method in methods}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _described(part: Any) -> dict[str, Any]:
    return {"name": part.name, **{name.rstrip("_"): value for name, value in asdict(part).items()}}


def _histogram(lambdas: Tensor | None, outcome: FederationResult) -> Mapping[str, int] | None:
    """How many benign clients have each lambda."""
    if lambdas is None:
        return None
    chose = benign_of(outcome.malicious, len(lambdas)) & lambdas.isfinite()
    return {f"{value:g}": count for value, count in sorted(Counter(lambdas[chose].tolist()).items())}
