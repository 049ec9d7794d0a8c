"""`holdfast federation status`: how a running federation fares."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.errors import ConfigError
from holdfast.report.html.markup import duration

if TYPE_CHECKING:
    from holdfast.integrations.flower.operation.status import FederationStatus

_FAULTS_SHOWN = 8


def status(folder: tyro.conf.Positional[Path], run: Path | None = None, watch: float = 0.0) -> None:
    """Show rounds, who answers, who is slow, and the last faults of a federation.

    Args:
        folder: of the federation.
        run: the run directory, where it is not FOLDER/run.
        watch: show it again every so many seconds, until Ctrl-C; once by default.
    """
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder
    from holdfast.integrations.flower.operation.status import status_of

    if watch < 0:
        raise ConfigError(f"--watch is {watch:g}; give a number of seconds")
    federation, console = FederationFolder.open(folder), Console()
    if not watch:
        console.print(shown(status_of(federation, run)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(shown(status_of(federation, run)), refresh=True)
            time.sleep(watch)


def shown(now: FederationStatus) -> Group:
    """A line on the rounds, a row per node, the last faults."""
    pace = f", {duration(now.seconds / now.number)} a round" if now.number else ""
    table = Table(box=None, header_style="bold")
    for column in ("node", "clients", "connected", "rounds per client", "late or away", "refused or failed"):
        table.add_column(column, justify="left" if column in ("node", "connected") else "right")
    for node in now.nodes:
        connected = {None: "?", True: "yes", False: "no"}[node.online]
        cells = [str(node.clients), connected, f"{node.joined:.1f}", str(node.slow), str(node.wrong)]
        table.add_row(escape(node.name), *cells)
    faults = [_fault(fault) for fault in now.faults[-_FAULTS_SHOWN:]]
    line = f"{now.state}: {now.number} of {now.rounds} rounds{pace}; {len(now.faults)} faults"
    return Group(Text(line), table, *map(Text, faults))


def _fault(fault: dict[str, object]) -> str:
    from holdfast.integrations.flower.messages.wire import sentence
    from holdfast.integrations.flower.roster import spelled

    clients = fault["clients"]
    who = f", clients {spelled(clients)}" if isinstance(clients, (list, tuple)) and clients else ""
    return f"round {fault['round']}{who}: {fault['kind']}, {sentence(fault['reason'])}"


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    tyro.cli(status, args=list(arguments), prog="holdfast federation status")
