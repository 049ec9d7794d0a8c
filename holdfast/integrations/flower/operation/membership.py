"""Who is admitted: the roster is the truth, and the SuperLink's register of keys is made to follow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.private import private_files
from holdfast.integrations.flower.roster import FORMAT, Roster, RosterNode, key_fingerprint

#: What a client may count for where the operator does not say it.
USUAL_EXAMPLES = 10_000
#: The status of a node that was registered once; the SuperLink keeps its key, which can't be registered again.
_GONE = "unregistered"


def admit(
    federation: FederationFolder,
    name: str,
    key: Path,
    clients: int | None = None,
    most_examples: int | None = None,
    *,
    replace: bool = False,
) -> RosterNode:
    """Put a node on the roster, with the lowest ids that nobody has.

    Args:
        federation: the folder.
        name: for people.
        key: the node's ``.pub`` file.
        clients: how many it hosts; one by default.
        most_examples: that one of its clients may count for; `USUAL_EXAMPLES` by default.
        replace: change what the roster says of a node that is on it: its key, and what else is given. With another
            number of clients all ids are dealt out anew.

    Raises:
        ConfigError: if the name or the key is there already, the key is none, or a run goes by the ids that there are.
    """
    try:
        text = key.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the public key {key} can't be read ({error}); give the node's .pub file") from error
    known = federation.roster()
    nodes = () if known is None else known.nodes
    if replace:
        before = _listed(nodes, name)
        examples = before.most_examples if most_examples is None else most_examples
        after = dataclasses.replace(before, key=text, token="", most_examples=examples)
        plain = [(after if node.name == name else node).as_dict() for node in nodes]
        if clients is not None and clients != len(before.clients):
            _refuse_other_ids(federation, name, len(before.clients))
            for node, each in zip(nodes, plain, strict=True):
                each["clients"] = clients if node.name == name else len(node.clients)
        return _save(plain, federation, name)
    if any(node.name == name for node in nodes):
        raise ConfigError(f"{name!r} is on the roster already; add --replace to change what it says of that node")
    entry: dict[str, Any] = {"name": name, "key": text, "clients": 1 if clients is None else clients}
    entry["most_examples"] = USUAL_EXAMPLES if most_examples is None else most_examples
    return _save([*(node.as_dict() for node in nodes), entry], federation, name)


def dismiss(federation: FederationFolder, name: str) -> RosterNode:
    """Let a node in no more; its clients keep their ids, and are away.

    Raises:
        ConfigError: if there is no such node.
    """
    known = federation.roster()
    nodes = () if known is None else known.nodes
    gone = dataclasses.replace(_listed(nodes, name), key="", token="")
    return _save([(gone if node.name == name else node).as_dict() for node in nodes], federation, name)


def _listed(nodes: Sequence[RosterNode], name: str) -> RosterNode:
    for node in nodes:
        if node.name == name:
            return node
    names = ", ".join(node.name for node in nodes) or "nobody"
    raise ConfigError(f"there is no node {name!r} on the roster; it has {names}")


def _refuse_other_ids(federation: FederationFolder, name: str, clients: int) -> None:
    """Whose a client is can't change in the middle of a run, and models are kept by ids."""
    from holdfast.training import Run  # noqa: PLC0415 - brings torch

    place = federation.run
    if (place / "config.yaml").exists() and (run := Run.open(place)).status != "finished":
        raise ConfigError(
            f"{name!r} has {clients} clients in the run at {run.path}, which has begun; finish it, or move its folder "
            "away, and then change their number"
        )


def _save(nodes: Sequence[Mapping[str, Any]], federation: FederationFolder, name: str) -> RosterNode:
    roster = Roster.from_plain({"format": FORMAT, "nodes": list(nodes)})
    with private_files():
        roster.save(federation.roster_file)
    return _listed(roster.nodes, name)


def register(access: Access, roster: Roster | None) -> list[str]:
    """Register the keys on the roster with the SuperLink, and unregister all others.

    Returns:
        The names of nodes whose key was unregistered before: a SuperLink takes no key twice.
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
        spent = {key_fingerprint(node.public_key) for node in listed} - there.keys()
        for node in (node for fingerprint, node in wanted.items() if fingerprint not in there.keys() | spent):
            control.RegisterNode(RegisterNodeRequest(public_key=_pem(node.key), name=node.name))
        gone = [number for fingerprint, number in there.items() if fingerprint not in wanted]
        for number in gone:
            control.UnregisterNode(UnregisterNodeRequest(node_id=number))
    return [node.name for fingerprint, node in wanted.items() if fingerprint in spent]


def _pem(key: str) -> bytes:
    """A public key as Flower compares it."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key  # noqa: PLC0415
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: PLC0415

    if key.startswith("-----"):
        return key.encode()
    return public_key_to_bytes(load_ssh_public_key(key.encode()))  # type: ignore[arg-type]
