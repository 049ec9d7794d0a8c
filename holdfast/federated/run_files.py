"""What a finished federation leaves in its run directory, beside its checkpoint and its personal models.

::

    results.json       the record: methods, settings, every number of every model, what was dropped, bytes, time
    clients.parquet    a row per client and model: benign, rounds it took part in, accuracy, loss, count, lambda
    adversarial.png    of methods that use them: test images, and below them their adversarial versions

They are written when the federation is over, the record last: its presence says that the run is finished. All of it but
the time follows from the state, so a run that was killed and continued leaves the same.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from holdfast.data.clients.clients import Clients
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.metrics.client_report import benign_of
from holdfast.federated.metrics.environment_record import adaptation_of, adversarial_picture, environments_of
from holdfast.federated.objectives import FederatedObjective
from holdfast.federated.personalization.base import Personalizer
from holdfast.federated.personalization.ditto.adaptive import AdaptiveDitto
from holdfast.federated.result import FederationResult
from holdfast.federated.settings import Rounds
from holdfast.files import write_atomically
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
    """

    data: str
    model: str
    settings: Rounds
    objective: FederatedObjective
    aggregator: Aggregator
    threat: Threat | None


def save_outcome(run: Run, outcome: FederationResult, clients: Clients, spec: FederationSpec) -> None:
    """Write ``clients.parquet`` and, last, ``results.json``.

    Args:
        run: the run directory.
        outcome: what came out.
        clients: the data, as it was before labels were poisoned.
        spec: what it was made of.
    """
    buffer = io.BytesIO()
    pq.write_table(pa.table(client_table(outcome, clients)), buffer)
    write_atomically(run.path / "clients.parquet", buffer.getvalue())
    if (picture := adversarial_picture(outcome.runtime, outcome.weights)) is not None:
        write_atomically(run.path / "adversarial.png", picture)
    run.save_results(record(outcome, clients, spec))


def read_clients(run: Run) -> dict[str, list[Any]]:
    """The columns of ``clients.parquet``."""
    columns: dict[str, list[Any]] = pq.read_table(run.path / "clients.parquet").to_pydict()
    return columns


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


def record(outcome: FederationResult, clients: Clients, spec: FederationSpec) -> dict[str, Any]:
    """Everything about a federation but the rows of its clients (Ditto spec 2.9)."""
    settings, threat = spec.settings, spec.threat
    attackers = len(outcome.malicious)
    f = 0 if threat is None else threat.expected(settings.cohort, attackers, len(clients))
    return {
        "kind": KIND,
        "data": spec.data,
        "fingerprint": clients.fingerprint(),
        "clients": len(clients),
        "model": spec.model,
        "parameters": outcome.network.trainable,
        "objective": _described(spec.objective),
        "aggregator": {"name": spec.aggregator.label, **asdict(spec.aggregator)},
        "attack": None if threat is None else _described(threat.attack),
        "malicious_ratio": 0.0 if threat is None else threat.ratio,
        "malicious": outcome.malicious.tolist(),
        "f": f,
        "seed": settings.seed,
        "settings": _recorded(settings),
        "personalize": {
            label: {**_described(method), "lambdas": _histogram(lambdas_of(outcome, label), outcome)}
            for label, method in _methods(outcome).items()
        },
        "measure": next(iter(outcome.reports.values())).measure,
        "models": {label: report.summary() for label, report in outcome.reports.items()},
        "environments": environments_of(outcome.runtime, outcome.weights, list(outcome.reports)),
        "adaptation": adaptation_of(outcome.runtime, outcome.weights),
        "history": outcome.history,
        "dropped": outcome.dropped,
        "faults": list(outcome.faults),
        "diverged_at": outcome.diverged_at,
        "never_joined": int((outcome.joined == 0).sum()),
        "warnings": spec.aggregator.check(settings.cohort, f),
        "executor": {"name": outcome.choice.name, "chunk": outcome.choice.chunk},
        "bytes_up": outcome.bytes_up,
        "bytes_down": outcome.bytes_down,
        "seconds": outcome.seconds,
    }


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
