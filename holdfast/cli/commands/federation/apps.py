"""The ready Flower app: a ServerApp and a ClientApp that `holdfast federate`'s configuration says everything about.

``holdfast federate ... --engine flower --app FOLDER`` writes the app that calls these two functions; `flwr run FOLDER`
starts it on a SuperLink.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.federation.options import FederateOptions, options_from
from holdfast.errors import ConfigError
from holdfast.integrations.flower.apps import client_app, server_app
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.rehearsal.project import CHARTER, OPTIONS, RUN
from holdfast.training import Run


def warm_up() -> None:
    """Read options once, before messages are forked: the parser reads the docstrings of all classes it meets.

    What it remembers of them is two thirds of what an order's options cost, and most of a small message.
    """
    options_from({"engine": "flower", "personalize": "ditto", "cohort": 1})


def make_client_app() -> ClientApp:
    """The ClientApp: answers for the clients that its node's configuration names."""
    return client_app(lambda context: blueprint_of(_options(context)), charter_in)


def make_server_app() -> ServerApp:
    """The ServerApp: runs the federation, and leaves the simulator's run directory and report."""
    return server_app(_serve)


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
    return options_from(ordered(context)[0])
