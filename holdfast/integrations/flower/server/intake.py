"""Replies from the SuperLink, one message's trouble kept from all others.

Flower's own `Grid.pull_messages` fetches whatever a node has sent, of any size, waits up to two hours for a part that
was announced and never comes, and lets any exception of one message end all of them. This one asks the SuperLink which
replies there are, and fetches each part by part with a bound on its bytes (`messages.objects`): a length is looked at
before the body is read, a part that is not there yet is asked for again later, and whatever goes wrong with a message
is a sentence about that message.

Grids that have no SuperLink behind them (Flower's simulation) have the messages in memory already; theirs are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import RecordDict
from flwr.common.constant import ErrorCode

from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.objects import Download, Limits, NotYetError
from holdfast.integrations.flower.messages.wire import sentence, unreadable

_log = logging.getLogger("holdfast.federated.flower")
#: Most bytes that the SuperLink's list of replies may have, and per reply; what stands around an object.
_LIST, _LIST_OF_REPLY, _ENVELOPE = 2**24, 2**20, 1024
_NO_REASON = "nobody says why"
#: What the SuperLink says itself when it knows no way to a node, or has lost a message.
_AWAY = (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
_PULL, _OBJECT = "/v1/runtime/pull-messages", "/v1/runtime/pull-object"


@dataclass(frozen=True)
class Arrival:
    """A reply that has arrived.

    Attributes:
        order: id of the message that it answers.
        content: what it says, if it may be looked at.
        failure: what its node or the SuperLink says went wrong, if that is the reply.
        refusal: why it is not looked at, if it is not.
        lost: whether it was lost by no fault of its node; the order is to be sent again.
        away: whether the SuperLink says that the node or the message is not there any more.
    """

    order: str
    content: RecordDict | None = None
    failure: str = ""
    refusal: str = ""
    lost: bool = False
    away: bool = False

    @classmethod
    def failed(cls, order: str, error: Any) -> Arrival:
        """Of an order that a node, or the SuperLink, answers with an error."""
        return cls(order, failure=sentence(error.reason) or _NO_REASON, away=error.code in _AWAY)


class Intake:
    """Replies of a Grid whose messages are in memory.

    Args:
        grid: of the run.
    """

    def __init__(self, grid: Any) -> None:
        self.grid = grid

    def pull(self, orders: Mapping[str, Limits]) -> list[Arrival]:
        """The replies to these orders that have arrived.

        Args:
            orders: what the reply to each may be, by the id of the message.
        """
        try:
            messages = list(self.grid.pull_messages(list(orders)))
        except Exception as error:
            _log.warning("a reply can't be read (%s); replies are taken one by one", sentence(error, 100))
            return [arrival for order in orders for arrival in self._one(order, orders[order])]
        return [self._checked(message, orders) for message in messages]

    def _one(self, order: str, limits: Limits) -> list[Arrival]:
        try:
            return [self._checked(message, {order: limits}) for message in self.grid.pull_messages([order])]
        except Exception as error:
            return [Arrival(order, refusal=unreadable(error))]

    def _checked(self, message: Any, orders: Mapping[str, Limits]) -> Arrival:
        order = message.metadata.reply_to_message_id
        if message.has_error():
            return Arrival.failed(order, message.error)
        try:
            orders[order].check(message.content)
        except RejectedError as error:
            return Arrival(order, refusal=str(error))
        return Arrival(order, message.content)

    def forget(self, order: str) -> None:
        """Expect nothing more of an order."""


class BoundedIntake(Intake):
    """Replies of a SuperLink, fetched part by part."""

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self._under_way: dict[str, Download] = {}
        self._one_by_one = False

    def pull(self, orders: Mapping[str, Limits]) -> list[Arrival]:
        """As of `Intake`; what has arrived in part is kept for the next time."""
        arrivals = []
        unseen = [order for order in orders if order not in self._under_way]
        for batch in [[order] for order in unseen] if self._one_by_one else [unseen]:
            arrivals += self._listed(batch, orders) if batch else []
        for order, download in list(self._under_way.items()):
            arrival = self._assembled(order, download)
            if arrival is not None:
                self._under_way.pop(order, None)
                arrivals.append(arrival)
        return arrivals

    def forget(self, order: str) -> None:
        """Expect nothing more of an order, and free what the SuperLink keeps of its reply."""
        download = self._under_way.pop(order, None)
        if download is not None:
            self._confirm(download.message)

    def _listed(self, batch: list[str], orders: Mapping[str, Limits]) -> list[Arrival]:
        """Which replies there are. The SuperLink forgets its list as it hands it out, so nobody may spoil it."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest  # noqa: PLC0415

        try:
            request = PullAppMessagesRequest(message_ids=batch)
            listed = self._post(_PULL, "PullMessages", request, _LIST + _LIST_OF_REPLY * len(batch))
        except RejectedError as error:
            self._one_by_one = True
            return [Arrival(order, refusal=str(error), lost=len(batch) > 1) for order in batch]
        arrivals = []
        for message in messages_in(listed):
            order = message.metadata.reply_to_message_id
            if order not in orders:
                continue
            if message.HasField("error"):
                arrivals.append(Arrival.failed(order, message.error))
                self._confirm(message.metadata.message_id)
            else:
                self._under_way[order] = Download(message.metadata.message_id, orders[order])
        return arrivals

    def _assembled(self, order: str, download: Download) -> Arrival | None:
        import httpx  # noqa: PLC0415

        try:
            arrival = Arrival(order, download.assemble(self._fetch))
        except NotYetError:
            return None
        except httpx.TransportError:
            raise
        except Exception as error:  # anything can be in a message, and a message is less than a round
            arrival = Arrival(order, refusal=unreadable(error))
        self._confirm(download.message)
        return arrival

    def _fetch(self, part: str, most: int) -> bytes | None:
        from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse  # noqa: PLC0415

        request = PullObjectRequest(node=self.grid.node, run_id=self.grid.run.run_id, object_id=part)
        got = PullObjectResponse.FromString(self._post(_OBJECT, "PullObject", request, most + _ENVELOPE))
        if not got.object_found:
            raise RejectedError("a part of it was announced and is not there")
        return got.object_content if got.object_available else None

    def _confirm(self, message: str) -> None:
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest  # noqa: PLC0415

        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=message
        )
        self.grid._runtime_client.ConfirmMessageReceived(request)

    def _post(self, path: str, method: str, request: Any, most: int) -> bytes:
        """What the SuperLink answers, if it is not longer than it may be; its length is looked at before it is read.

        Raises:
            RejectedError: if it is longer.
        """
        from flwr.supercore.protobuf.client import ProtobufRequestContext  # noqa: PLC0415
        from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE  # noqa: PLC0415

        client, content = self.grid._runtime_client, request.SerializeToString(deterministic=True)
        kinds = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE, "accept-encoding": "identity"}

        def post() -> bytes:
            built = client._client.build_request("POST", f"{client._base_url}{path}", content=content, headers=kinds)
            context = ProtobufRequestContext(f"/flwr.proto.Runtime/{method}", request, built)
            response = client._send(context, stream=True)
            try:
                response.raise_for_status()
                return _bounded(response.headers.get("content-length"), response.iter_raw(), most)
            finally:
                response.close()

        answer: bytes = client._retry_invoker.invoke(post) if client._retry_invoker is not None else post()
        return answer


def intake_of(grid: Any) -> Intake:
    """The intake for a Grid."""
    return BoundedIntake(grid) if hasattr(grid, "_runtime_client") else Intake(grid)


def messages_in(listed: bytes) -> Iterator[Any]:
    """The messages of a SuperLink's list (field 1), each parsed by itself, and the trees beside them (field 2) not."""
    from flwr.proto.message_pb2 import Message  # noqa: PLC0415

    for number, field in fields_of(listed):
        if number == 1:
            try:
                yield Message.FromString(field)
            except Exception as error:  # protobuf's own, which has no types
                _log.warning("an entry in the SuperLink's list of replies can't be read: %s", sentence(error, 100))


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the length-delimited fields of a protobuf message; it ends where that does."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 != 2:
            return
        length, place = _varint(message, place)
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift, each in enumerate(message[place : place + 10]):
        value |= (each & 127) << 7 * shift
        if each < 128:
            return value, place + shift + 1
    return 0, len(message)


def _bounded(claimed: str | None, pieces: Iterable[bytes], most: int) -> bytes:
    if claimed is not None and claimed.isdigit() and int(claimed) > most:
        raise RejectedError(f"a part of it has {int(claimed):,} bytes where at most {most:,} may come")
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > most:
            raise RejectedError(f"a part of it has more than the {most:,} bytes that may come")
    return bytes(body)
