"""`holdfast federation join`: be a node, with data of your own that never leaves this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.federation.serve import stop
from holdfast.cli.common.sections import Section, found_anywhere, parse_sections
from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

    from holdfast.data.own.options import ReadingOptions
    from holdfast.integrations.flower.operation.invitation import Invitation

_ABOUT = """Take part in a federation. The data is read as the federation's invitation says and checked before \
anything is sent; then this node waits until the operator has admitted its key, and answers until you stop it. It \
trains with the holdfast that is installed here: no code of the server runs on this machine.

Example: `holdfast federation join --invitation invitation.json --server fl.example.org:8443 --data wards.csv --label \
outcome --client ward --state /var/lib/holdfast`."""
_DATA = "data"


@dataclass(frozen=True)
class Joining:
    """Which federation, and what this node brings.

    Attributes:
        invitation: the file that the operator gave you.
        server: host and port of the federation.
        data: your data: a table (csv, parquet), a folder of images, an npz file.
        state: a folder for what this node keeps: its key, personal models, its log. Back it up.
        allow_code: packages of the federation's own code that you have read and that may run here.
        threads: of the processor, for training.
        check: only check the data, say what would be sent, and stop.
    """

    invitation: Path
    server: str
    data: str
    state: Path
    allow_code: tuple[str, ...] = ()
    threads: int = 1
    check: bool = False


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    from holdfast.data.own.options import ReadingOptions

    sections = {"joining": Section(Joining, None), "reading": Section(ReadingOptions, ReadingOptions)}
    parsed = parse_sections(arguments, sections, program="holdfast federation join", about=_ABOUT)
    take_part(parsed["joining"], found_anywhere(parsed["reading"]))


def take_part(joining: Joining, reading: ReadingOptions) -> None:
    """Read, check, and be a node until the user ends it."""
    from holdfast.integrations.flower.nodes.joining import JoinedNode, check_server
    from holdfast.integrations.flower.operation.invitation import Invitation
    from holdfast.integrations.flower.operation.private import close_to_others, private_folder
    from holdfast.integrations.flower.rehearsal.deployment import require_flower

    require_flower()
    check_server(joining.server)
    os.umask(0o077)  # whatever this node writes is its user's alone
    invitation = Invitation.load(joining.invitation)
    _check_code(invitation, joining.allow_code)
    state = private_folder(joining.state.resolve())
    close_to_others(state)
    _tell(f"invitation {invitation.digest}: {_trained(invitation)}")
    _warm_up(invitation)
    for line in _elsewhere(_prepare, invitation, joining.data, reading, state):
        _tell(line)
    key = _key(state)
    if joining.check:
        return
    signal.signal(signal.SIGTERM, stop)
    JoinedNode(
        server=joining.server,
        certificate=_certificate(state, invitation),
        key=key,
        state=state,
        config={"data": str(state / _DATA)},
        answer=_answer(invitation, state / _DATA, os.dup(sys.stdout.fileno())),
        threads=joining.threads,
        tell=_tell,
    ).run()


def _warm_up(invitation: Invitation) -> None:
    """Import once what the process that reads the data needs, and every message after it."""
    import holdfast.cli.commands.federation.blueprint
    import holdfast.data.own.schema
    import holdfast.integrations.flower.nodes.own_data  # noqa: F401
    from holdfast.cli.commands.federation.options import parse
    from holdfast.cli.common.arguments import as_arguments

    parse(as_arguments(invitation.options))


def _elsewhere(work: Callable[..., list[str]], *given: object) -> list[str]:
    """Do `work` in a process of its own: threads of readers must not be here when messages are forked."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        try:
            return pool.submit(work, *given).result()
        except HoldfastError as error:
            raise error from None  # where in that process it was raised is nothing for the user


def _answer(invitation: Invitation, data: Path, terminal: int) -> Callable[[Message, Context], Message]:
    """The app of this node: what holdfast installed here makes of an order, where the invitation allows it.

    Messages are answered in processes that print to the log. What the node's own people need to know is written to
    `terminal`: who takes part under which number, or why nobody does.
    """
    from holdfast.cli.commands.federation.apps import make_client_app, ordered

    app = make_client_app()

    def tell(sentence: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone, and the node goes on
            os.write(terminal, _line(sentence).encode())

    def answer(message: Message, context: Context) -> Message:
        try:
            invitation.check_order(*ordered(context))
            invitation.charter.model.check_here()
            reply = app(message, context)
        except HoldfastError as error:
            tell(f"an order of the server was refused: {error}")
            raise
        if (said := _roles(reply.content, data)) is not None:
            tell(said)
        return reply

    return answer


def _roles(content: RecordDict, data: Path) -> str | None:
    """What a node has answered when it was asked whom it hosts, for its own people; None of another answer."""
    from holdfast.data import Clients
    from holdfast.integrations.flower.messages.wire import head_of, wholes, word
    from holdfast.integrations.flower.roster import spelled

    head = head_of(content)
    if "refusal" in head:
        return f"a run began, and this node does not take part: {word(head, 'refusal')}"
    if "charter" not in head:
        return None
    names, ids = Clients.open(data).names, wholes(head, "clients")
    pairs = [f"{name} is client {number}" for name, number in zip(names, ids, strict=False)]
    return f"takes part: {', '.join(pairs[:8]) or spelled(ids)}{', ...' if len(pairs) > 8 else ''}"


def _prepare(invitation: Invitation, place: str, reading: ReadingOptions, state: Path) -> list[str]:
    """Read and check the data, and keep it where every message finds it; in a process of its own."""
    import shutil

    from holdfast.cli.commands.federation.blueprint import blueprint_of
    from holdfast.cli.commands.federation.options import parse
    from holdfast.cli.common.arguments import as_arguments
    from holdfast.errors import counted
    from holdfast.integrations.flower.nodes.own_data import check_names, most_examples, read_clients
    from holdfast.integrations.flower.operation.private import private_files

    options = parse(as_arguments(invitation.options))
    clients = read_clients(invitation.charter, place, reading, seed=options.settings.seed)
    invitation.charter.check_model(blueprint_of(options).model(clients))
    kept, fresh = state / _DATA, state / f".{_DATA}.new"
    check_names(kept, clients)
    with private_files():
        shutil.rmtree(fresh, ignore_errors=True)
        clients.save(fresh)
        shutil.rmtree(kept, ignore_errors=True)
        fresh.replace(kept)
    names = ", ".join(clients.names[:8]) + (", ..." if len(clients) > 8 else "")
    return [
        f"{place}: {counted(len(clients), 'client')} ({names}), {int(clients.train.counts.sum()):,} rows to train on, "
        f"the largest part of a client has {most_examples(clients):,}; it fits the federation",
        *clients.notes,
        f"the operator admits this node with: holdfast federation admit FOLDER NAME node.pub --clients {len(clients)} "
        f"--most-examples {most_examples(clients)}",
    ]


def _check_code(invitation: Invitation, allowed: Sequence[str]) -> None:
    """Refuse code that nobody here has allowed, before any of it is imported."""
    model = invitation.charter.model
    if not model.package:
        return
    if model.package not in allowed:
        raise ConfigError(
            f"the federation trains {model.name}, which is code of the package {model.package} "
            f"{model.version or '(no version)'} (source {model.sha256[:16]}); read it, and if it may run here add "
            f"--allow-code {model.package}"
        )
    model.check_here()


def _trained(invitation: Invitation) -> str:
    charter = invitation.charter
    methods = invitation.options.get("personalize", "none")
    return f"{charter.model.name}, {charter.classes} classes, personal models: {methods}"


def _key(state: Path) -> Path:
    from holdfast.integrations.flower.operation.credentials import make_node_key

    key = state / "node"
    if not key.exists():
        make_node_key(key)
        _tell(f"made a key; send {key}.pub to the operator and keep {key} to yourself")
    return key


def _certificate(state: Path, invitation: Invitation) -> Path:
    from holdfast.files import write_atomically

    file = state / "ca.crt"
    write_atomically(file, invitation.certificate.encode())
    return file


def _tell(sentence: str) -> None:
    """A line for the user; what others wrote can't move the cursor."""
    sys.stdout.write(_line(sentence))
    sys.stdout.flush()


def _line(sentence: str) -> str:
    from holdfast.integrations.flower.messages.wire import sentence as escaped

    return f"{escaped(sentence, most=2000)}\n"
