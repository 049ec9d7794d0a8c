"""A node's own file as clients of a federation: read with the federation's schema, and checked before it joins.

What is measured (means, scales, categories, classes) was measured once, where the federation was founded. A node
measures nothing, so the same value is the same number everywhere, and nothing about its data leaves it this way.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.data.clients.clients import Clients
from holdfast.errors import DataError, FederationError
from holdfast.integrations.flower.charter import Charter

if TYPE_CHECKING:
    from holdfast.data.own.options import ReadingOptions
    from holdfast.data.own.schema import Schema


def read_clients(charter: Charter, place: str, reading: ReadingOptions, *, seed: int = 0) -> Clients:
    """The clients of a node, ready for the federation.

    Args:
        charter: what the federation owns.
        place: a table, a folder of images, an npz file; a folder of `Clients.save` where the charter has no schema.
        reading: how this node calls its label and the column that says whose a row is; as the schema by default.
        seed: decides which of a client's rows are held out.

    Raises:
        DataError: if the data can't be read as the schema says; the sentence says where and what to do.
        FederationError: if it is not what the charter says.
    """
    schema = charter.read_schema()
    clients = Clients.open(Path(place)) if schema is None else _by_schema(schema, place, reading, seed)
    charter.check_data(clients)
    return clients


def most_examples(clients: Clients) -> int:
    """The largest number of examples in any part of any client, which the roster must allow."""
    return max(int(part.counts.max()) for part in clients.parts.values())


def _by_schema(schema: Schema, place: str, reading: ReadingOptions, seed: int) -> Clients:
    from holdfast.data.clients.own import clients_of_sources, stackable  # noqa: PLC0415 - reads no files before

    here = replace(schema, label=reading.label or schema.label, client=reading.client or schema.client)
    found = here.read(place, reading)
    if not found.labelled:
        raise DataError(f"{place} has no column {here.label!r} with the classes; name it with --label")
    if found.examples.sources is None:
        raise DataError(f"{place} has no column {here.client!r} that names each row's client; name it with --client")
    clients = clients_of_sources(stackable(found.examples), found.examples.source_names, seed)
    return replace(clients, schema=here, notes=found.notes)  # later data of this node is called as this is


def check_names(before: Path, now: Clients) -> None:
    """Refuse other clients than this node had: they have ids by their order, and personal models by their ids.

    Args:
        before: the folder with the clients that the node joined with last, if it did.
        now: those that it is to join with.

    Raises:
        FederationError: if they are not the same.
    """
    if not before.exists() or (known := Clients.open(before).names) == now.names:
        return
    raise FederationError(
        f"this node joined with the clients {', '.join(known)[:200]} and has now {', '.join(now.names)[:200]}; "
        "bring the same clients, or take another --state and be admitted anew"
    )
