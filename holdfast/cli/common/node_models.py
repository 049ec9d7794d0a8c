"""The personal models on a Flower node, for `holdfast export` and `holdfast predict`: its state folder is all it takes.

A node keeps the federation's configuration, its own, and a file per client; the shared model of the last evaluation is
there too. Nothing is sent and nobody else is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import CheckpointError, ConfigError, FederationError, nearest

if TYPE_CHECKING:
    from holdfast.cli.commands.federation.options import FederateOptions
    from holdfast.data import Clients
    from holdfast.integrations.flower.nodes.node import Node
    from holdfast.training.prediction import PredictionData
    from holdfast.training.trained import TrainedModel

_OPTIONS, _CONFIG, _SHARED = "options.json", "node.json", "shared.safetensors"


def node_state(path: Path) -> Path | None:
    """The folder of a federation in a node's state, which `path` is or has; None where it is something else.

    Raises:
        ConfigError: if it has several federations, or is of somebody's own Flower project.
    """
    if (path / _OPTIONS).is_file() and (path / _CONFIG).is_file():
        return path
    inside = sorted(file.parent for file in path.glob(f"*/{_OPTIONS}") if (file.parent / _CONFIG).is_file())
    inside = [folder for folder in inside if (folder / _SHARED).exists()] or inside  # not those that came to nothing
    if len(inside) > 1:
        raise ConfigError(
            f"the node at {path} has models of several runs; give the folder of one: "
            + ", ".join(f"{folder} (of {_day(folder)})" for folder in sorted(inside, key=_touched))
        )
    if not inside and not (path / "config.yaml").exists() and any(path.glob("run-*/*.safetensors")):
        raise ConfigError(
            f"{path} has personal models of a Flower project of your own, whose network only your code can build; "
            "`export_personal` in holdfast.integrations.flower.mod writes one as a state dict"
        )
    return inside[0] if inside else None


@dataclass(frozen=True)
class NodeModels:
    """The personal models that a node keeps of one federation.

    Attributes:
        folder: of the federation, in the node's state.
        label: of the method; the only one by default.
    """

    folder: Path
    label: str | None = None

    @property
    def names(self) -> list[str]:
        """What the clients of this node are called: as in its own data, or by their ids."""
        clients, ids = self._holdings
        return list(clients.names) or [str(client) for client in ids]

    def find(self, name: str) -> int:
        """The id of the client called `name`.

        Raises:
            ConfigError: if the node has no such client.
        """
        ids, names = self._holdings[1], self.names
        if name in names:
            return ids[names.index(name)]
        if name in (numbers := [str(client) for client in ids]):
            here = names[numbers.index(name)]
            raise ConfigError(f"client {name} of the federation is called {here!r} here; give --client {here}")
        raise ConfigError(f"the node at {self.folder} has no client {name!r}{nearest(name, names)}")

    def took_part(self, client: int) -> bool:
        """Whether a client has a model of its own."""
        return self._node.states.last(client) is not None

    def state_dict(self, client: int) -> dict[str, Any]:
        """The client's model.

        Raises:
            FederationError: if it has none, or none by that method.
            ConfigError: if it has several and it is not said which is meant.
        """
        from holdfast.federated.engine.client_runtime import SECOND

        remembered = self._node.states.last(client)
        labels = sorted(remembered.rows.keys() - {SECOND}) if remembered is not None else []
        if not labels:
            raise FederationError(f"client {client} has no personal model yet; it has taken part in no round here")
        if self.label is not None and self.label not in labels:
            raise ConfigError(f"client {client} has no model by {self.label!r}{nearest(self.label, labels)}")
        if self.label is None and len(labels) > 1:
            raise ConfigError(f"client {client} has models by {', '.join(labels)}; say which with --method")
        return dict(self._node.personal(self.label or labels[0], client))

    def trained(self) -> TrainedModel:
        """The shared model of the last evaluation, which personal models are built like.

        Raises:
            FederationError: if nothing was evaluated yet.
        """
        from holdfast.cli.commands.federation.blueprint import model_spec
        from holdfast.federated.run_files import card_of
        from holdfast.training.state import load_state
        from holdfast.training.trained import TrainedModel

        if not (self.folder / _SHARED).exists():
            raise FederationError(f"the node at {self.folder} has seen no evaluation yet; wait for the first")
        clients = self._holdings[0]
        spec = model_spec(self._options, clients.input_shape, clients.outputs)
        card = card_of(clients, {"federation": self.folder.name})
        known = load_state(self.folder / _SHARED)
        model = self._node.runtime(known["total"]).network.load(known["weights"])
        return TrainedModel(model, card, spec)

    @property
    def clients(self) -> Clients:
        """The data of the node's clients, which `names` are the names of."""
        from dataclasses import replace

        return replace(self._holdings[0], names=tuple(self.names))

    def read(self, place: str) -> PredictionData:
        """Other data of the node's own, read as the federation's charter and this node's first data say.

        Raises:
            ConfigError: if the node's data was no table, images or texts, so that nothing says how others are read.
        """
        from holdfast.cli.common.scoring import read_by_schema

        schema = self._holdings[0].schema
        if schema is None:
            raise ConfigError(
                f"the node at {self.folder} has no schema that says what {place} means; leave the file out, or export "
                "the model with `holdfast export`"
            )
        return read_by_schema(schema, place, stacked=True)

    @property
    def _holdings(self) -> tuple[Clients, list[int]]:
        return self._node.holdings

    @cached_property
    def _options(self) -> FederateOptions:
        from holdfast.cli.commands.federation.options import options_from

        return options_from(_read(self.folder / _OPTIONS))

    @cached_property
    def _node(self) -> Node:
        from holdfast.cli.commands.federation.blueprint import blueprint_of
        from holdfast.integrations.flower.nodes.node import Node

        # The folder may have been copied or moved since the node wrote where it was.
        config = {**_read(self.folder / _CONFIG), "state": str(self.folder.resolve().parent)}
        return Node(blueprint_of(self._options), config, self.folder.resolve().name)


def _touched(folder: Path) -> float:
    return (folder / _OPTIONS).stat().st_mtime


def _day(folder: Path) -> str:
    return f"{datetime.fromtimestamp(_touched(folder)).astimezone():%Y-%m-%d %H:%M}"


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} can't be read ({error}); restore it from a copy of the node's state") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds no configuration; restore it from a copy of the node's state")
    return content
