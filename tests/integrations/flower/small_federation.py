"""Runs the same options in the simulator and on Flower."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.federation.federate import charter_of
from holdfast.cli.commands.federation.options import FederateOptions, parse
from holdfast.federated import federate
from holdfast.federated.result import FederationResult
from holdfast.integrations.flower.nodes.client_state import ClientStates
from holdfast.integrations.flower.rehearsal.deployment import Deployment
from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
from holdfast.integrations.flower.rehearsal.project import CHARTER, app_files
from holdfast.integrations.flower.server.federation import federate_on_flower
from holdfast.training import Run
from holdfast.training.state import load_state

#: What launchers import for their nodes.
APPS = "holdfast.cli.commands.federation.apps"
SMALL = ["--engine", "flower", "--evaluate-every", "0", "--digits-clients.clients", "16", "--cohort", "8"]


def options_of(*words: str) -> FederateOptions:
    return parse([*SMALL, *words])


def on_flower(
    deployment: Deployment, options: FederateOptions, run: Run, *, files=None, listeners=(), roster=None, charter=None
) -> FederationResult:
    assert options.flower is not None
    plan = blueprint_of(options)
    clients = plan.load()
    charter = charter or charter_of(options, clients, plan.model(clients))
    app = app_files(options.config(), **{CHARTER: charter.to_json()}) | (files or {})
    roster = roster or deployment.roster(len(clients), 10_000)
    with grid_of_new_run(deployment.address, app, deployment.bell) as grid:
        return federate_on_flower(grid, plan, options.flower, charter, roster=roster, run=run, listeners=listeners)


def in_simulator(options: FederateOptions) -> FederationResult:
    plan = blueprint_of(options)
    clients = plan.load()
    return federate(
        clients,
        plan.model(clients),
        options.settings,
        objective=plan.objective,
        aggregator=plan.aggregator,
        threat=plan.threat,
        personalize=plan.personalize,
        expect_malicious=plan.expectation,
        server_optimizer=plan.server_optimizer,
        privacy=plan.privacy,
    )


def new_run(folder: Path, options: FederateOptions) -> Run:
    return Run.create(folder, options.config(), kind="federation")


def personal_rows(deployment: Deployment, run: Run, label: str, clients: int) -> dict[int, torch.Tensor]:
    """What nodes keep of the clients that took part."""
    name = (run.path / "federation").read_text()
    found = {}
    for folder in (deployment.folder / "nodes").iterdir():
        states = ClientStates(folder / name)
        for client in range(clients):
            if (state := states.last(client)) is not None:
                found[client] = state.rows[label]
    return found


def digest(path: Path) -> str:
    """Of what a client remembers; the file itself may name its parts in any order."""
    saved = load_state(path)
    found = hashlib.sha256(str(saved["drawn"]).encode())
    for label, row in sorted(saved["rows"].items()):
        found.update(label.encode() + row.numpy().tobytes())
    return found.hexdigest()
