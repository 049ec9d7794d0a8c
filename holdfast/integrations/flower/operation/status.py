"""How a federation fares: rounds, who answers, who is slow, what went wrong. Read from the run directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import FederationError
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.roster import RosterNode, key_fingerprint
from holdfast.training import Run

#: Faults that a node is slow or away by, and those that it is to blame for.
_SLOW, _WRONG = ("silent", "away", "returned"), ("refused", "failed")


@dataclass(frozen=True)
class NodeStatus:
    """How a node fares.

    Attributes:
        name: of the node.
        clients: that it hosts.
        online: whether it is connected; None where the SuperLink can't be asked.
        joined: mean number of rounds that its clients took part in.
        slow: times that one of its clients did not answer in time.
        wrong: times that what it sent was not used: an order's reply, for each client, or the node as a whole when
            it was asked whom it hosts.
    """

    name: str
    clients: int
    online: bool | None
    joined: float
    slow: int
    wrong: int


@dataclass(frozen=True)
class FederationStatus:
    """How a federation fares.

    Attributes:
        state: of the run, in a word.
        number: rounds that are over.
        rounds: that there are to be.
        seconds: that they took.
        nodes: how each fares.
        faults: of all rounds so far, plain values.
    """

    state: str
    number: int
    rounds: int
    seconds: float
    nodes: tuple[NodeStatus, ...]
    faults: tuple[dict[str, Any], ...]


def status_of(federation: FederationFolder, run_folder: Path | None = None) -> FederationStatus:
    """Look at a federation, without disturbing it."""
    place = run_folder or federation.run
    run = Run.open(place) if (place / "config.yaml").exists() else None
    state = run.load_checkpoint() if run is not None and run.has_checkpoint() else {}
    # The last evaluation has faults too, and it comes after the last checkpoint.
    ended = None if run is None else run.results
    faults = tuple((state if ended is None else ended).get("faults", ()))
    roster, online = federation.roster(), _online(federation)
    joined = state["joined"].tolist() if "joined" in state else []
    nodes = tuple(_node(node, online, joined, faults) for node in (roster.nodes if roster is not None else ()))
    rounds = int(run.config["rounds"]) if run is not None else int(federation.invitation().options["rounds"])
    word = "not started" if run is None else run.status
    return FederationStatus(word, int(state.get("number", 0)), rounds, float(state.get("seconds", 0)), nodes, faults)


def _node(
    node: RosterNode, online: set[str] | None, joined: list[int], faults: tuple[dict[str, Any], ...]
) -> NodeStatus:
    mine = [joined[client] for client in node.clients if client < len(joined)]
    kinds = Counter[str]()
    for fault in faults:
        of_clients = len(set(fault["clients"]) & set(node.clients))
        kinds[fault["kind"]] += of_clients + (fault.get("node") == node.name)
    return NodeStatus(
        node.name,
        len(node.clients),
        None if online is None else bool(node.key) and node.fingerprint in online,
        sum(mine) / max(len(mine), 1),
        sum(kinds[kind] for kind in _SLOW),
        sum(kinds[kind] for kind in _WRONG),
    )


def _online(federation: FederationFolder) -> set[str] | None:
    """Fingerprints of the nodes that are connected; None where the SuperLink does not run."""
    from flwr.proto.control_pb2 import ListNodesRequest  # noqa: PLC0415

    try:
        with federation.access().control() as control:
            nodes = control.ListNodes(ListNodesRequest()).nodes_info
            return {key_fingerprint(node.public_key) for node in nodes if node.status == "online"}
    except FederationError:
        return None
