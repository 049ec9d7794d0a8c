"""A ClientApp for tests: the last two of four nodes send something else in every one of four rounds."""

import io

import numpy as np
from flwr.app import Array, Message
from flwr.clientapp import ClientApp

from holdfast.cli.commands.federation.apps import make_client_app

honest = make_client_app()
app = ClientApp()


def nan(arrays, head):
    arrays["updates"] = Array(np.full_like(arrays["updates"].numpy(), np.nan))


def shape(arrays, head):
    arrays["updates"] = Array(arrays["updates"].numpy()[:, :-1])


def dtype(arrays, head):
    arrays["updates"] = Array(arrays["updates"].numpy().astype(np.float16))


def claim(arrays, head):
    sent = arrays["updates"]
    arrays["updates"] = Array(sent.dtype, (4, 1_250_000_000), sent.stype, sent.data)


def header(arrays, head):
    sent, stream = arrays["updates"], io.BytesIO()
    giant = {"descr": "<f4", "fortran_order": False, "shape": (4, 1_250_000_000)}
    np.lib.format.write_array_header_1_0(stream, giant)
    arrays["updates"] = Array(sent.dtype, tuple(sent.shape), sent.stype, stream.getvalue() + b"\0" * 16)


def negative(arrays, head):
    head["examples"] = [-5 for _ in head["examples"]]


def stale(arrays, head):
    head["number"] = head["number"] - 1


def strangers(arrays, head):
    head["clients"] = [0, 1, 2, 3]


MISDEEDS = [nan, shape, dtype, claim, header, negative, stale, strangers]


@app.train()
def train(message: Message, context) -> Message:
    reply = honest(message, context)
    order = message.content["holdfast"]
    first = {"3/4": 0, "2/4": 4}.get(context.node_config["share"])
    if order["action"] == "train" and first is not None:
        misdeed = MISDEEDS[first + order["number"] % 4]
        misdeed(reply.content["arrays"], reply.content["holdfast"])
    return reply
