"""A node for tests that speaks to the proxy by itself: it is admitted, has its key, and sends what it likes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from holdfast.integrations.flower.messages.wire import Request, packed
from holdfast.integrations.flower.operation.federation_folder import FederationFolder


def node_client(federation: FederationFolder, key: Path) -> tuple[FleetHttpClient, bytes]:
    """A client of the Fleet API that signs with a key, and the public half of it."""
    private = load_ssh_private_key(key.read_bytes(), None)
    interceptors = [RuntimeVersionHttpInterceptor("SuperNode"), NodeAuthHttpInterceptor(private, private.public_key())]
    trusted = (federation.keys / "ca.crt").read_bytes()
    client = FleetHttpClient.from_server_address(federation.listen, False, trusted, interceptors)
    return client, public_key_to_bytes(private.public_key())


class Insider:
    """A node by hand. As a context manager it is connected.

    Args:
        federation: whose.
        name: of its key, in the folder of the federation.
        clients: that it has.
    """

    def __init__(self, federation: FederationFolder, name: str, clients: list[int]) -> None:
        self.client, self.key = node_client(federation, federation.path / name)
        self.clients = clients

    def __enter__(self) -> Insider:
        self.number = self.client.ActivateNode(ActivateNodeRequest(public_key=self.key, heartbeat_interval=60)).node_id
        self.node = Node(node_id=self.number)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.number))
        self.client.close()

    def pull(self) -> Message | None:
        """The next order, if there is one."""
        got = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not got.messages_list:
            return None
        metadata = message_from_proto(got.messages_list[0]).metadata
        try:
            contents = {name: self._object(metadata.run_id, name) for name in _names(got.message_object_trees[0])}
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.FORBIDDEN:  # it is of a run that has ended
                return None
            raise
        message = inflate_object_from_contents(metadata.message_id, contents)
        message.metadata.__dict__["_message_id"] = metadata.message_id
        request = ConfirmMessageReceivedRequest(
            node=self.node, run_id=metadata.run_id, message_object_id=metadata.message_id
        )
        self.client.ConfirmMessageReceived(request)
        return message

    def _object(self, run: int, name: str) -> bytes:
        """A part of an order, which may come a moment after the order itself."""
        request = PullObjectRequest(node=self.node, run_id=run, object_id=name)
        while not (got := self.client.PullObject(request)).object_available:
            time.sleep(0.05)
        return bytes(got.object_content)

    def push(self, reply: Message, **metadata: Any) -> list[str]:
        """Send a reply, with other metadata than is true; return what the SuperLink wants to have of it."""
        for name, value in metadata.items():
            reply.metadata.__dict__[f"_{name}"] = value
        reply.metadata.__dict__["_message_id"] = reply.object_id
        head = message_to_proto(remove_content_from_message(reply))
        run = reply.metadata.run_id
        push = PushMessagesRequest(
            node=self.node,
            messages_list=[head],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[0.1],
        )
        answer = self.client.PushMessages(push)
        contents = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
        for name in answer.objects_to_push:
            request = PushObjectRequest(
                node=self.node,
                run_id=run,
                session_id=answer.session_id,
                object_id=name,
                object_content=contents[name],
            )
            self.client.PushObject(request)
        return list(answer.objects_to_push)

    def answer(self, message: Message, **arrays: Any) -> Message:
        """The reply of an honest node, with these arrays."""
        request = Request.of(message.content)
        head: dict[str, Any] = {"number": request.number, "clients": list(request.clients)}
        if request.action == "census":
            counts = {part: [10] * len(self.clients) for part in ("train", "validation", "test")}
            head = {"clients": self.clients, "identity": "x", "classes": 2, "task": "classes", "shape": [4], **counts}
        return Message(packed(head, arrays), reply_to=message)


def _names(tree: Any) -> list[str]:
    return [tree.object_id, *(name for child in tree.children for name in _names(child))]
