"""`holdfast federation init`: the options of `federate`, with an example of what nodes will have as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.markup import escape

from holdfast.cli.commands.federation.options import AT_NODES, FederateOptions, parse
from holdfast.cli.common.arguments import value_of
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data import Clients
    from holdfast.integrations.flower.charter import Charter

_ABOUT = """Create a federation on this machine, which becomes its server. Everything is written into one folder; \
invitation.json in it is for the nodes and holds nothing secret.

All options of `holdfast federate` can be given too: model, rounds, aggregation, personal models. --data is a small \
example of what nodes have, with the same columns (made up, or one node's): classes, categories and scales are \
measured on it once, for all nodes.

Example: `holdfast federation init ours --host fl.example.org --data example.csv --label outcome --client ward \
--model mlp --rounds 50 --aggregate median --personalize ditto`."""
_COHORT = 10  # clients in a round, or all where there are fewer
_SHARE = 256  # of a megabyte, for the heads of a client's arrays


@dataclass(frozen=True)
class Founding:
    """Where the server is.

    Attributes:
        folder: to write everything into.
        host: names and addresses under which nodes reach this machine; they are in its certificate.
        listen: address and port of the proxy, which nodes reach.
        superlink: address and port of the SuperLink, which only this machine reaches.
        clients_per_node: the most clients that one node may host, which bounds what it may send.
    """

    folder: tyro.conf.Positional[Path]
    host: tuple[str, ...] = ("127.0.0.1",)
    listen: str = "0.0.0.0:8443"
    superlink: str = "127.0.0.1:8000"
    clients_per_node: int = 100


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    founding, rest = tyro.cli(
        Founding, args=list(arguments), return_unknown_args=True, prog="holdfast federation init", description=_ABOUT
    )
    fair = [] if value_of("sampling", rest) is not None else ["--sampling", "uniform"]  # counts are claims
    options = parse(["--engine", "flower", *fair, *rest])
    _refuse(options, founding, rest)
    from holdfast.integrations.flower.operation.founding import found
    from holdfast.integrations.flower.rehearsal.deployment import require_flower

    require_flower()
    charter, clients = _charter(options, founding.clients_per_node)
    folder = found(
        founding.folder,
        charter=charter,
        options=for_nodes(options, cohort_given=value_of("cohort", rest) is not None),
        hosts=founding.host,
        listen=founding.listen,
        superlink=founding.superlink,
    )
    _tell(Console(), folder.path, clients, charter, folder.invitation().digest)


def for_nodes(options: FederateOptions, *, cohort_given: bool) -> dict[str, Any]:
    """The options that nodes are given: all of training, and nothing about this machine or its data.

    The recipe of the example has its number of clients as the cohort, which says nothing about the federation.
    """
    from holdfast.data.own.options import ReadingOptions

    about_data = {f.name for f in fields(ReadingOptions)} | {options.data.name, "partitioned", "data_root"}
    config = {key: value for key, value in options.config().items() if key not in about_data}
    return {**config, "data": AT_NODES, **({} if cohort_given else {"cohort": _COHORT})}


def _refuse(options: FederateOptions, founding: Founding, rest: Sequence[str]) -> None:
    if not any(word == "--data" or word.startswith("--data=") or word == "--config" for word in rest):
        raise ConfigError("give --data: a small example of what nodes have, which says how theirs is read")
    if options.choices.weights:
        raise ConfigError(f"nodes have no {options.choices.weights!r}; leave --weights out, the server starts afresh")
    if options.choices.app is not None or options.choices.resume is not None:
        raise ConfigError("--app and --resume are for federate; init writes an app of its own")
    if options.threat is not None:
        raise ConfigError("--attack is for the simulator and rehearsals, never for real nodes; leave it out")
    if founding.clients_per_node < 1:
        raise ConfigError(f"--clients-per-node is {founding.clients_per_node}; give at least 1")


def _charter(options: FederateOptions, clients_per_node: int) -> tuple[Charter, Clients]:
    from holdfast.cli.commands.federation.blueprint import blueprint_of
    from holdfast.cli.commands.federation.federate import charter_of
    from holdfast.integrations.flower.charter import OVERHEAD

    blueprint = blueprint_of(options)
    clients = blueprint.load()
    model = blueprint.model(clients)
    blueprint.assemble(clients)  # the example may have fewer clients than a round wants
    vectors = 1 if options.objective.second is None else 2
    size = vectors * sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    most = OVERHEAD + clients_per_node * (size + OVERHEAD // _SHARE)
    return replace(charter_of(options, clients, model), most_bytes=most), clients


def _tell(console: Console, folder: Path, clients: Clients, charter: Charter, digest: str) -> None:
    own = f", source {charter.model.sha256[:16]}" if charter.model.package else ""
    lines = [
        *(f"  {note}" for note in clients.notes),
        f"The federation trains {charter.model.name}{own} on inputs of shape {charter.input_shape} and "
        f"{charter.classes} classes.",
        f"Give {folder / 'invitation.json'} to the nodes; its digest is {digest}.",
        f"Next: holdfast federation serve {folder}; then holdfast federation admit {folder} NAME NODE.pub --clients N",
    ]
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)
