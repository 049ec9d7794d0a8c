"""Who is admitted: the roster is the truth, and the SuperLink's register of keys is made to follow it."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.private import private_files
from holdfast.integrations.flower.roster import FORMAT, Roster, RosterNode, key_fingerprint, token_of

#: The status of a node that was registered once; the SuperLink keeps its key, which can't be registered again.
_GONE = "unregistered"


def admit(
    federation: FederationFolder, name: str, key: Path, clients: int, most_examples: int, *, replace: bool = False
) -> RosterNode:
    """Put a node on the roster, with the lowest ids that nobody has.

    Args:
        federation: the folder.
        name: for people.
        key: the node's ``.pub`` file.
        clients: how many it hosts.
        most_examples: that one of its clients may count for.
        replace: give a node that is on the roster another key; it keeps its clients.

    Raises:
        ConfigError: if the name or the key is there already, or the key is none.
    """
    try:
        text = key.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the public key {key} can't be read ({error}); give the node's .pub file") from error
    if replace:
        return _proved_by(federation, name, key=text, token="")
    known = federation.roster()
    entry = {"name": name, "key": text, "clients": clients, "most_examples": most_examples}
    plain = [] if known is None else [node.as_dict() for node in known.nodes]
    roster = Roster.from_plain({"format": FORMAT, "nodes": [*plain, entry]})
    _save(roster, federation)
    return roster.nodes[-1]


def dismiss(federation: FederationFolder, name: str) -> RosterNode:
    """Let a node in no more; its clients keep their ids, and are away.

    Its proof becomes the token of a secret that nobody has.

    Raises:
        ConfigError: if there is no such node.
    """
    return _proved_by(federation, name, key="", token=token_of(secrets.token_hex(32)))


def _proved_by(federation: FederationFolder, name: str, *, key: str, token: str) -> RosterNode:
    known = federation.roster()
    nodes = () if known is None else known.nodes
    if name not in {node.name for node in nodes}:
        names = ", ".join(node.name for node in nodes) or "nobody"
        raise ConfigError(f"there is no node {name!r} on the roster; it has {names}")
    changed = [dataclasses.replace(node, key=key, token=token) if node.name == name else node for node in nodes]
    _save(Roster.from_plain({"format": FORMAT, "nodes": [node.as_dict() for node in changed]}), federation)
    return next(node for node in changed if node.name == name)


def _save(roster: Roster, federation: FederationFolder) -> None:
    with private_files():
        roster.save(federation.roster_file)


def register(access: Access, roster: Roster | None) -> tuple[list[str], int]:
    """Register the keys on the roster with the SuperLink, and unregister all others.

    Returns:
        The names of nodes that were not registered yet, and how many keys were taken out.
    """
    from flwr.proto.control_pb2 import (  # noqa: PLC0415
        ListNodesRequest,
        RegisterNodeRequest,
        UnregisterNodeRequest,
    )

    wanted = {} if roster is None else {node.fingerprint: node for node in roster.nodes if node.key}
    with access.control() as control:
        listed = control.ListNodes(ListNodesRequest()).nodes_info
        there = {key_fingerprint(node.public_key): node.node_id for node in listed if node.status != _GONE}
        new = [node for fingerprint, node in wanted.items() if fingerprint not in there]
        for node in new:
            control.RegisterNode(RegisterNodeRequest(public_key=_pem(node.key), name=node.name))
        gone = [number for fingerprint, number in there.items() if fingerprint not in wanted]
        for number in gone:
            control.UnregisterNode(UnregisterNodeRequest(node_id=number))
    return [node.name for node in new], len(gone)


def _pem(key: str) -> bytes:
    """A public key as Flower compares it."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key  # noqa: PLC0415
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: PLC0415

    if key.startswith("-----"):
        return key.encode()
    return public_key_to_bytes(load_ssh_public_key(key.encode()))  # type: ignore[arg-type]
