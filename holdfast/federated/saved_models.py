"""The personal models of a federation that is over, one client at a time, as state dicts.

A run keeps a row of numbers per client and method (`holdfast.federated.engine.store`), and a method makes a model of
it: some of the row alone, APFL of the row and the shared model, Per-FedAvg by a step on the client's own data. So the
federation is needed as it was prepared, data included. Nothing is written, so a run that is read-only will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import CheckpointError, ConfigError, DataError, nearest
from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.state import State
from holdfast.federated.engine.store import RowStore
from holdfast.federated.preparation import PreparedFederation
from holdfast.training.prediction import ClassScores, PredictionData
from holdfast.training.run import Run, understanding
from holdfast.training.trained import TrainedModel


@dataclass(frozen=True, eq=False)
class PersonalModels:
    """The models that one method gave the clients of a federation.

    Attributes:
        label: of the method, as in reports.
        runtime: the data and the rows.
        shared: the shared model, shape (P,).
    """

    label: str
    runtime: ClientRuntime
    shared: Tensor

    @property
    def names(self) -> list[str]:
        """Of the clients; their numbers where they have no names."""
        clients = self.runtime.clients
        return list(clients.names) or [str(client) for client in range(len(clients))]

    def find(self, name: str) -> int:
        """The client called `name`.

        Raises:
            ConfigError: if there is none; the message offers the nearest.
        """
        names = self.names
        if name not in names:
            raise ConfigError(f"the federation has no client {name!r}{_some(name, names)}")
        return names.index(name)

    def took_part(self, client: int) -> bool:
        """Whether a client has a model of its own; one that was never selected has the shared model."""
        return bool(self.runtime.stores[self.label].written[client])

    def state_dict(self, client: int) -> dict[str, Any]:
        """The client's model, for `load_state_dict`."""
        row = self.runtime.personal(self.label, torch.tensor([client]), self.shared)[0]
        return self.runtime.network.load(row).state_dict()


def personal_models(run: Run, prepared: PreparedFederation, label: str | None = None) -> PersonalModels:
    """The personal models in the directory of a finished federation.

    Args:
        run: the directory.
        prepared: the federation that left it, built again from the same configuration.
        label: of the method, where there were several.

    Returns:
        The models.

    Raises:
        ConfigError: if there are none, they are elsewhere, or it is not said which are meant.
        CheckpointError: if the run's files are of another federation, or damaged.
    """
    labels = [method.label for method in prepared.personalizers]
    if not labels:
        raise ConfigError(
            f"the federation at {run.path} has a shared model only; leave out --client, or federate with --personalize"
        )
    state, saved = _saved(run)
    if saved["choice"]["name"] == "flower":
        raise ConfigError(
            f"the personal models of {run.path} are with their clients, on the Flower nodes; there, `holdfast export "
            "STATE --client NUMBER` writes one, with the node's state folder"
        )
    if label is None and len(labels) > 1:
        raise ConfigError(f"the federation at {run.path} has models by {', '.join(labels)}; say which with --method")
    chosen = label or labels[0]
    if chosen not in labels:
        raise ConfigError(f"the federation at {run.path} has no models by {chosen!r}{nearest(chosen, labels)}")
    method = next(each for each in prepared.personalizers if each.label == chosen)
    runtime = prepared.runtime()
    store = RowStore(
        len(prepared.clients),
        method.initial(prepared.network),
        run.path / "personal" / f"{chosen}.rows",
        writable=False,
    )
    places = saved["stores"].get(chosen, {"places": ()})
    if len(places["places"]) != len(store):
        raise CheckpointError(f"the checkpoint in {run.path} has other clients or methods than its configuration says")
    store.load_state_dict(places)
    runtime.stores[chosen] = store
    return PersonalModels(chosen, runtime, prepared.objective.output(state.weights, state.server))


class ModelsByName(Protocol):
    """Clients' own models: a run's `PersonalModels`, or those on a node."""

    def find(self, name: str) -> int:
        """The client called `name`."""

    def state_dict(self, client: int) -> dict[str, Any]:
        """Its model."""


def scores_by_client(
    models: ModelsByName,
    trained: TrainedModel,
    data: PredictionData,
    score: Callable[[nn.Module, Examples], ClassScores],
) -> ClassScores:
    """What the clients' own models say, each of the examples that are its client's.

    Args:
        models: the personal models.
        trained: the shared model, which has the same network.
        data: the examples, with the client of each.
        score: runs a model over examples.

    Raises:
        DataError: if it is not known whose the examples are.
        ConfigError: if one is of a client that the federation does not have.
    """
    if data.clients is None:
        raise DataError("the data does not say which client each example belongs to; name one client with --client")
    rows: dict[str, list[int]] = {}
    for place, name in enumerate(data.clients):
        rows.setdefault(name, []).append(place)
    own = {name: models.find(name) for name in rows}  # before the first model runs
    parts = [
        score(trained.of_client(name, models.state_dict(own[name])).model, data.examples.subset(places))
        for name, places in rows.items()
    ]
    order = torch.tensor([place for places in rows.values() for place in places])
    return ClassScores.joined(parts).at(torch.argsort(order))


def shared_weights(run: Run, prepared: PreparedFederation) -> dict[str, Any]:
    """The shared model's state dict from the checkpoint, for runs made before they kept it as a file."""
    state, _ = _saved(run)
    if len(state.weights) != prepared.network.size:
        raise CheckpointError(f"the checkpoint in {run.path} is of another model than its configuration says")
    return prepared.network.load(prepared.objective.output(state.weights, state.server)).state_dict()


def _saved(run: Run) -> tuple[State, dict[str, Any]]:
    saved = run.load_checkpoint()
    with understanding(run.path):
        return State.of(saved), {"choice": saved["choice"], "stores": saved["stores"]}


def _some(name: str, names: list[str]) -> str:
    """The nearest name, or the first and the last: there may be thousands."""
    close = nearest(name, names)
    return close if "did you mean" in close or len(names) <= 20 else f"; they go from {names[0]} to {names[-1]}"
