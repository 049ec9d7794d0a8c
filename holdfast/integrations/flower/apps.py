"""The two sides of a Flower app that runs a federation of holdfast."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from holdfast.federated.blueprint import Blueprint
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.nodes.node import Node


def client_app(
    blueprint: Callable[[Context], Blueprint], charter: Callable[[Context], Charter | None] = lambda context: None
) -> ClientApp:
    """A ClientApp that answers a server's orders for the clients of its node.

    Args:
        blueprint: makes the federation's blueprint from the run's configuration.
        charter: reads what the federation owns from the run's configuration.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        request = Request.of(message.content)
        node = Node(blueprint(context), context.node_config, request.federation, charter(context))
        return Message(node.answer(request, message.content), reply_to=message)

    return app


def server_app(serve: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp that runs `serve`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, context)

    return app
