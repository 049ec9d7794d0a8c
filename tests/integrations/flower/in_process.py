"""Real nodes with real data behind a SuperLink of this process, so that a whole federation takes a second."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Error, Message

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.federation.federate import charter_of
from holdfast.cli.commands.federation.options import FederateOptions
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.nodes.ids import share_of
from holdfast.integrations.flower.nodes.node import Node
from holdfast.integrations.flower.roster import even_roster, token_of
from holdfast.integrations.flower.server.federation import federate_on_flower
from tests.integrations.flower.byte_grid import ByteGrid


class Nodes:
    """So many nodes that share a data set's clients evenly.

    Attributes:
        tamper: what malicious nodes do to a reply, by node: a function of the reply's content and the request.
    """

    def __init__(self, folder: Path, options: FederateOptions, nodes: int) -> None:
        self.folder, self.options, self.number = folder, options, nodes
        self.plan = blueprint_of(options)
        self.clients = self.plan.load()
        self.charter = charter_of(options, self.clients, self.plan.model(self.clients))
        self.tamper: dict[int, object] = {}
        shares = [len(share_of(f"{node}/{nodes}", len(self.clients))) for node in range(nodes)]
        self.roster = even_roster([token_of(f"secret {node}") for node in range(nodes)], shares, 10_000)
        for node in range(nodes):
            self.place(node).mkdir(parents=True, exist_ok=True)
            (self.place(node) / "token").write_text(f"secret {node}")

    def place(self, node: int) -> Path:
        return self.folder / str(node)

    def answer(self, node: int, message: Message) -> Message:
        request = Request.of(message.content)
        config = {"state": str(self.place(node)), "share": f"{node}/{self.number}"}
        try:
            content = Node(self.plan, config, request.federation, self.charter).answer(request, message.content)
        except Exception as error:
            return Message(Error(1, str(error)), reply_to=message)
        if node in self.tamper:
            self.tamper[node](content, request)
        return Message(content, reply_to=message)

    def grid(self) -> ByteGrid:
        return ByteGrid(
            {100 + node: lambda message, node=node: self.answer(node, message) for node in range(self.number)}
        )

    def federate(self, run=None, **changes):
        settings = changes.pop("settings", self.options.flower)
        arguments = {"roster": self.roster, "charter": self.charter, "blueprint": self.plan, **changes}
        grid = arguments.pop("grid", None) or self.grid()
        return federate_on_flower(grid, settings=settings, run=run, **arguments)
