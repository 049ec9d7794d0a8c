"""A grid without a network: every message goes through Flower's serialization to a real ClientApp and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes 1000, 1001, ... with the partition ids 0, 1, ...; each has an app and a context that outlives a message.

    Attributes:
        order: what is done to the replies before they are handed over.
        lost: whether a message never reaches its node.
        seen: every reply, as the server can read it.
    """

    def __init__(self, apps, *, run_id=1):
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run_id, 1
        self.nodes = {1000 + number: app for number, app in enumerate(apps)}
        self.contexts = {
            node: Context(run_id, node, {"partition-id": node - 1000}, RecordDict(), {}) for node in self.nodes
        }
        self.order: Callable[[list[Message]], list[Message]] = list
        self.lost: Callable[[Message], bool] = lambda message: False
        self.seen: list[Message] = []

    def send_and_receive(self, messages, *, timeout=None):
        replies = [self._answer(message) for message in messages if not self.lost(message)]
        self.seen += replies
        return self.order(replies)

    def _answer(self, message):
        node = message.metadata.dst_node_id
        received = through_wire(message)
        try:
            return through_wire(self.nodes[node](received, self.contexts[node]))
        except Exception as error:
            return Message(Error(0, repr(error)), reply_to=message)

    def get_node_ids(self):
        return list(self.nodes)

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **options):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError


def through_wire(message):
    return message_from_proto(message_to_proto(message))


def record_of(arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def reply_to(message, arrays, **metrics):
    metrics = {name.replace("_", "-"): value for name, value in metrics.items()}
    return Message(RecordDict({"arrays": record_of(arrays), "metrics": MetricRecord(metrics)}), reply_to=message)


def numbers(record):
    return {name: array.numpy() for name, array in record.items()}
