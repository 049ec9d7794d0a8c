"""The ready Flower app: a ServerApp and a ClientApp that `holdfast federate`'s configuration says everything about.

``holdfast federate ... --engine flower --app FOLDER`` writes the app that calls these two functions; `flwr run FOLDER`
starts it on a SuperLink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.federation.options import FederateOptions, as_before, parse
from holdfast.cli.common.arguments import as_arguments
from holdfast.errors import ConfigError, FederationError
from holdfast.integrations.flower.apps import client_app, server_app
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.nodes.node import Node
from holdfast.integrations.flower.rehearsal.project import CHARTER, OPTIONS, RUN
from holdfast.training import Run
from holdfast.training.weights import save_weights


def make_client_app() -> ClientApp:
    """The ClientApp: answers for the clients that its node's configuration names."""
    return client_app(lambda context: blueprint_of(_options(context)), charter_in)


def make_server_app() -> ServerApp:
    """The ServerApp: runs the federation, and leaves the simulator's run directory and report."""
    return server_app(_serve)


def export_personal(state: Path | str, federation: str, client: int, label: str, out: Path | str) -> None:
    """Write the personal model of a client of this node as a safetensors file of its state dictionary.

    Args:
        state: the node's ``state`` folder.
        federation: name of a folder in it.
        client: id.
        label: of the personalization method, such as ``ditto``.
        out: the file.

    Raises:
        FederationError: if the node has no such model.
    """
    folder = Path(state) / federation
    if not (folder / "options.json").exists():
        known = ", ".join(sorted(path.parent.name for path in Path(state).glob("*/options.json"))) or "none"
        raise FederationError(f"{state} has nothing of federation {federation!r}; it has {known}")
    saved = json.loads((folder / "node.json").read_text())
    options = _parsed(json.loads((folder / "options.json").read_text()))
    model = Node(blueprint_of(options), saved, federation).personal(label, client)
    save_weights(model, Path(out))


def _serve(grid: Grid, context: Context) -> None:
    from holdfast.cli.commands.federation.federate import finish, on_grid

    options = _options(context)
    where = context.run_config.get(RUN)
    if not isinstance(where, str) or not where:
        raise ConfigError(f"the app does not say where its run directory is; add -c '{RUN}=\"/a/folder\"' to flwr run")
    path = Path(where)
    run = Run.open(path) if (path / "config.yaml").exists() else Run.create(path, options.config(), kind="federation")
    if run.status == "finished":
        raise ConfigError(f"the run at {run.path} is finished; choose another folder")
    charter = charter_in(context)
    if charter is None:
        raise ConfigError("the app has no charter; write it again with `holdfast federation init` or `federate --app`")
    outcome = on_grid(grid, options, run, charter)
    finish(outcome, outcome.runtime.clients, options, run, Console())


def charter_in(context: Context) -> Charter | None:
    """What the federation owns, as the app that the server sent says it; None where it says nothing."""
    text = context.run_config.get(CHARTER)
    return Charter.from_json(text) if isinstance(text, str) and text else None


def ordered(context: Context) -> tuple[dict[str, Any], str]:
    """What the app that the server sent asks for: its options as plain values, and its charter as text.

    Raises:
        ConfigError: if it is no app of holdfast.
    """
    text, charter = context.run_config.get(OPTIONS), context.run_config.get(CHARTER, "")
    try:
        options = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict) or not isinstance(charter, str):
        raise ConfigError("the app has no configuration of holdfast; write it with `holdfast federation init`")
    return options, charter


def _options(context: Context) -> FederateOptions:
    return _parsed(ordered(context)[0])


def _parsed(config: Mapping[str, Any]) -> FederateOptions:
    return parse([*as_before(config), *as_arguments(config)])
