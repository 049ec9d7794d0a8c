"""`holdfast federation admit` and `dismiss`: who may take part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape

from holdfast.errors import FederationError


def admit(
    folder: tyro.conf.Positional[Path],
    name: tyro.conf.Positional[str],
    key: tyro.conf.Positional[Path],
    *,
    clients: int | None = None,
    most_examples: int | None = None,
    replace: bool = False,
) -> None:
    """Put a node on the roster, by its public key; nobody else can speak for its clients.

    Args:
        folder: of the federation.
        name: what you call the node.
        key: the .pub file that the node sent you.
        clients: how many clients it hosts, as its `join` printed; 1 by default.
        most_examples: the most training examples that one of its clients may count for; 10,000 by default.
        replace: change the roster's entry of this node: its key, and what else is given. Also admits a node again that
            was dismissed. Another number of clients renumbers all clients, which is possible only between runs.
    """
    from holdfast.integrations.flower.operation import membership
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder
    from holdfast.integrations.flower.roster import spelled

    federation = FederationFolder.open(folder)
    node = membership.admit(federation, name, key, clients, most_examples, replace=replace)
    said = f"{node.name} hosts the clients {spelled(node.clients)}, each of at most {node.most_examples:,} examples"
    _follow(federation, said)


def dismiss(folder: tyro.conf.Positional[Path], name: tyro.conf.Positional[str]) -> None:
    """Exclude a node from now on; its clients keep their ids and do not take part.

    Args:
        folder: of the federation.
        name: of the node.
    """
    from holdfast.integrations.flower.operation import membership
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder

    federation = FederationFolder.open(folder)
    _follow(federation, f"{membership.dismiss(federation, name).name} is no longer admitted")


def main(arguments: Sequence[str]) -> None:
    """Run `admit`."""
    tyro.cli(admit, args=list(arguments), prog="holdfast federation admit")


def dismiss_main(arguments: Sequence[str]) -> None:
    """Run `dismiss`."""
    tyro.cli(dismiss, args=list(arguments), prog="holdfast federation dismiss")


def _follow(federation: object, said: str) -> None:
    """Have the SuperLink's register follow the roster, where it runs."""
    from holdfast.integrations.flower.operation.federation_folder import FederationFolder
    from holdfast.integrations.flower.operation.membership import register

    assert isinstance(federation, FederationFolder)
    spent: list[str] = []
    try:
        spent = register(federation.access(), federation.roster())
        when = ""
    except FederationError:
        when = " from the next start of `holdfast federation serve` on"
    lines = [f"{said}{when}.", *(spent_key(name) for name in spent)]
    for line in lines:
        Console().print(escape(line), highlight=False, soft_wrap=True)


def spent_key(name: str) -> str:
    """What to do with a node that comes back after it was dismissed."""
    return (
        f"The key of {name} was shut out when it was dismissed, and a SuperLink takes no key twice: have the node "
        "remove `node` and `node.pub` from its state folder and start again, then admit its new key with --replace."
    )
