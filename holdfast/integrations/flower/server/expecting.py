"""Before a server asks anybody: who may take part, whom it defends itself against, and whether the run is the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.errors import ConfigError
from holdfast.federated.expectation import Expectation
from holdfast.federated.run_files import FREE
from holdfast.files import plain_values, write_atomically
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.roster import Roster
from holdfast.integrations.flower.settings import FlowerSettings
from holdfast.training.run import Run

#: Options that a run may be continued with others of: they say where things are, and how long and for whom to wait.
_FREE = {
    *FREE, "nodes", "timeout",
    "join_timeout", "minimum", "on_few", "late", "late_rounds", "roster", "unlisted", "most_faults",
    "data_root", "out", "track", "resume", "app", "config", "engine",
}  # fmt: skip


def roster_of(settings: FlowerSettings) -> Roster | None:
    """The roster that the settings name; None where nobody needs to be on one.

    Raises:
        ConfigError: if there is none and nobody said so.
    """
    if settings.roster is not None:
        return Roster.load(settings.roster)
    if settings.unlisted:
        return None
    raise ConfigError(
        "there is no roster, so any node could claim any client; give --roster FILE (holdfast federation init writes "
        "one), or --unlisted if every node that can reach the SuperLink is yours"
    )


def expectation_of_nodes(expectation: Expectation, settings: FlowerSettings, roster: Roster | None) -> Expectation:
    """The expectation in clients, where it is stated in nodes: as many as so many nodes host at most.

    A node speaks for all of its clients, so a malicious one is as many malicious clients. Which nodes they are nobody
    knows; the largest are the worst case, and the number of a cohort follows from that of the federation as ever.

    Raises:
        ConfigError: if nobody knows who shares a node.
    """
    nodes = settings.expect_malicious_nodes
    if nodes is None:
        return expectation
    if roster is None:
        raise ConfigError(f"--expect-malicious-nodes {nodes} needs a roster, which says which clients share a node")
    if nodes > len(roster.nodes):
        raise ConfigError(f"{nodes} malicious nodes are expected among {len(roster.nodes)}; expect fewer")
    stated = expectation.expect_malicious or 0.0
    clients = math.ceil(round(stated * len(roster), 9)) if stated < 1 else int(stated)
    return replace(expectation, expect_malicious=float(max(clients, roster.largest(nodes))))


def check_unchanged(run: Run, options: Mapping[str, Any], charter: Charter) -> None:
    """Refuse to go on with a run that was started with something else, and write down what a new one is started with.

    Raises:
        ConfigError: which names every key that differs.
    """
    file = run.path / "charter.json"
    if not file.exists():
        write_atomically(file, charter.to_json().encode())
    changed = [
        f"charter.{key}" for key in differences(Charter.from_json(file.read_text()).as_dict(), charter.as_dict())
    ]
    changed += [key for key in differences(run.config, plain_values(options)) if key.split(".")[0] not in _FREE]
    if changed:
        raise ConfigError(
            f"the run at {run.path} was started with another configuration, and these differ: {', '.join(changed)}; "
            "give them as they were, or choose another folder for a new run"
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys whose values differ; of a section, its keys with a dot between."""
    keys = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys += [f"{key}.{inner}" for inner in differences(old, new)]
        elif old != new:
            keys.append(key)
    return keys
