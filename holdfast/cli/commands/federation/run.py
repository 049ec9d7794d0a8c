"""`holdfast federation run`: the rounds, driven from this terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from holdfast.cli.commands.federation.options import parse
from holdfast.cli.common.arguments import as_arguments
from holdfast.errors import ConfigError

_ABOUT = """Start the rounds of a federation, or continue after an interruption; `holdfast federation serve` \
must be running. Options that concern the server alone may differ from those given to `init`: --rounds, --cohort, \
--timeout, --minimum, --on-few, --aggregate, --expect-malicious, ...; nodes refuse everything else."""


@dataclass(frozen=True)
class Rounds:
    """Where things are.

    Attributes:
        folder: of the federation.
        out: the run directory; FOLDER/run by default.
    """

    folder: tyro.conf.Positional[Path]
    out: Path | None = None


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    given, rest = tyro.cli(
        Rounds, args=list(arguments), return_unknown_args=True, prog="holdfast federation run", description=_ABOUT
    )
    from holdfast.cli.commands.federation.federate import finish, on_grid
    from holdfast.cli.common.progress import RoundsProgress
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder
    from holdfast.integrations.flower.rehearsal.driver import grid_of_new_run
    from holdfast.integrations.flower.rehearsal.project import CHARTER, app_files
    from holdfast.training import Run

    federation, console = FederationFolder.open(given.folder), Console()
    roster, invitation = federation.roster(), federation.invitation()
    if roster is None:
        raise ConfigError(
            f"no node is admitted yet; admit one: holdfast federation admit {given.folder} NAME NODE.pub --clients N"
        )
    cohort = min(int(invitation.options["cohort"]), len(roster))
    usual = ["--nodes", str(len(roster.present)), "--roster", str(federation.roster_file), "--cohort", str(cohort)]
    options = parse([*as_arguments(invitation.options), *usual, *rest])
    charter = invitation.charter
    invitation.check_order(options.config(), charter.to_json())
    os.umask(0o077)
    place = (given.out or federation.run).resolve()
    run = (
        Run.open(place) if (place / "config.yaml").exists() else Run.create(place, options.config(), kind="federation")
    )
    if run.status == "finished":
        raise ConfigError(f"the run at {run.path} is finished; give --out for another one")
    app = app_files(options.config(), **{CHARTER: charter.to_json()})
    with RoundsProgress("federation", console) as progress, grid_of_new_run(federation.access(), app) as grid:
        outcome = on_grid(grid, options, run, charter, listeners=[progress], roster=roster)
    finish(outcome, outcome.runtime.clients, options, run, console)
