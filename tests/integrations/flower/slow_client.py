"""A ClientApp for tests: the last of four nodes needs so many seconds more for every order to train."""

import time

from flwr.app import Message
from flwr.clientapp import ClientApp

from holdfast.cli.commands.federation.apps import make_client_app

honest = make_client_app()
app = ClientApp()


@app.train()
def train(message: Message, context) -> Message:
    if message.content["holdfast"]["action"] == "train" and context.node_config["share"] == "3/4":
        time.sleep(SECONDS)  # noqa: F821 - the test writes a number
    return honest(message, context)
