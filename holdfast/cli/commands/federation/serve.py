"""`holdfast federation serve`: SuperLink and proxy, until it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import tyro
from rich.console import Console
from rich.markup import escape


def serve(folder: tyro.conf.Positional[Path]) -> None:
    """Start the SuperLink on this machine's loopback address, and the proxy that lets admitted nodes in.

    Ends with both when it is stopped, or when one of them ends; run it under systemd or another supervisor.

    Args:
        folder: of the federation.
    """
    from holdfast.cli.commands.federation.admit import spent_key
    from holdfast.errors import counted
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder
    from holdfast.integrations.flower.operation.membership import register
    from holdfast.integrations.flower.operation.private import close_to_others
    from holdfast.integrations.flower.operation.service import serving

    federation, console = FederationFolder.open(folder), Console()
    if opened := close_to_others(federation.path):
        console.print(f"{opened} files of the federation could be read by other users; they no longer can.")
    signal.signal(signal.SIGTERM, stop)
    with serving(federation) as service:
        spent = register(federation.access(), federation.roster())
        known = federation.roster()
        nodes = "nobody is admitted yet" if known is None else f"{counted(len(known.present), 'node')} admitted"
        where = f"{federation.listen}, by the name {' or '.join(federation.hosts)}"
        text = f"Nodes reach the federation at {where}, as long as this runs; {nodes}."
        for line in (text, *(spent_key(name) for name in spent)):
            console.print(escape(line), highlight=False, soft_wrap=True)
        service.wait()


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    tyro.cli(serve, args=list(arguments), prog="holdfast federation serve")


def stop(number: int, frame: FrameType | None) -> None:
    """End as by Ctrl-C: what supervisors send is no accident."""
    raise KeyboardInterrupt
