"""A SuperLink of a few lines in this process: it stores what nodes send as Flower does, in objects of bytes, and hands
them out over the calls that a server makes. What a node sends can be anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node, NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity


@dataclass
class Sent:
    """What the SuperLink has of a reply: its entry in the list, and its objects; None is announced and not there."""

    message: object
    root: str
    objects: dict[str, bytes | None] = field(default_factory=dict)


def as_sent(reply: Message) -> Sent:
    """A reply as an honest SuperNode sends it."""
    objects = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
    proto = message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)
    proto.metadata.message_id = reply.object_id
    return Sent(proto, reply.object_id, objects)


class ByteGrid:
    """Nodes by id, each a function from a message to a reply, `Sent`, or None for silence.

    Attributes:
        keys: public keys of nodes.
        fetched: bytes that the server has read, by object.
        confirmed: messages that the server no longer needs.
        asked: the nodes that were sent something, in turn.
        actions: what they were asked.
    """

    def __init__(self, nodes: dict[int, Callable[[Message], object]], keys: dict[int, bytes] | None = None) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.nodes, self.keys = nodes, keys or {}
        self.since = dict.fromkeys(nodes, "then")
        self.node, self.run = Node(node_id=1), SimpleNamespace(run_id=1)
        self.replies: dict[str, Sent] = {}
        self.objects: dict[str, bytes | None] = {}
        self.fetched: dict[str, int] = {}
        self.confirmed: list[str] = []
        self.asked: list[int] = []
        self.actions: list[str] = []
        self._names = itertools.count()
        self._runtime_client = self
        self._client, self._base_url, self._retry_invoker = self, "", None

    # ---------------------------------------------------------------------------------------------- the Grid

    def get_nodes(self):
        return [
            NodeInfo(node_id=node, public_key=self.keys.get(node, b""), last_activated_at=self.since.get(node, "then"))
            for node in self.nodes
        ]

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"{next(self._names):064x}"
            message.metadata.__dict__["_message_id"] = name
            self.asked.append(message.metadata.dst_node_id)
            self.actions.append(str(message.content["holdfast"]["action"]))
            names.append(name)
            self.deliver(name, message)
        return names

    def count(self, node, *actions):
        """How often a node was asked such things."""
        return sum(pair[0] == node and pair[1] in actions for pair in zip(self.asked, self.actions, strict=True))

    def deliver(self, name, message):
        answer = self.nodes[message.metadata.dst_node_id](message)
        if answer is not None:
            self.take(name, as_sent(answer) if isinstance(answer, Message) else answer)

    def take(self, name, sent):
        sent.message.metadata.reply_to_message_id = name
        self.replies[name] = sent
        self.objects |= sent.objects

    # ---------------------------------------------------------------------------------------------- the SuperLink

    def build_request(self, method, url, **_):
        return url

    def _send(self, context, *, stream=False):
        return Response(self, *getattr(self, context.rpc_method.rpartition("/")[2])(context.message))

    def PullMessages(self, request):  # noqa: N802
        there = [self.replies.pop(name) for name in request.message_ids if name in self.replies]
        for sent in there:
            if not sent.message.metadata.message_id:
                sent.message.metadata.message_id = sent.root
        return "list", PullAppMessagesResponse(messages_list=[sent.message for sent in there]).SerializeToString()

    def PullObject(self, request):  # noqa: N802
        content = self.objects.get(request.object_id, b"")
        found = request.object_id in self.objects
        answer = PullObjectResponse(
            object_found=found, object_available=content is not None, object_content=content or b""
        )
        return request.object_id, answer.SerializeToString()

    def ConfirmMessageReceived(self, request):  # noqa: N802
        self.confirmed.append(request.message_object_id)


class Response:
    """An HTTP response whose body is counted as it is read."""

    def __init__(self, grid: ByteGrid, name: str, body: bytes) -> None:
        self.grid, self.name, self.body = grid, name, body
        self.headers = {"content-length": str(len(body))}

    def raise_for_status(self) -> None:
        pass

    def iter_raw(self) -> Iterator[bytes]:
        for start in range(0, len(self.body), 2**16):
            piece = self.body[start : start + 2**16]
            self.grid.fetched[self.name] = self.grid.fetched.get(self.name, 0) + len(piece)
            yield piece

    def close(self) -> None:
        pass
