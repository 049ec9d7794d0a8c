"""A Grid of a few lines whose nodes answer at once, unless they are told otherwise."""

from __future__ import annotations

import itertools

import torch
from flwr.app import Message, RecordDict
from flwr.app.error import Error

from holdfast.integrations.flower.messages.wire import Request, head_of, packed, wholes
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.questions import Answers, Question
from holdfast.integrations.flower.settings import FlowerSettings

NAME = "0123456789abcdef" * 2


#: What becomes of a reply that is dropped on its way.
LOST = object()


class Peer:
    """A node that answers at once, unless it is told otherwise."""

    def __init__(self, identity: str, clients: list[int], /, **census) -> None:
        self.identity, self.clients, self.census = identity, clients, census
        self.silent = self.broken = False
        self.lost: list[Error | None] = []
        self.censuses = self.inquiries = self.lost_replies = 0
        self.trained: list[int] = []

    def answer(self, message: Message) -> RecordDict | Error | object | None:
        request = Request.of(message.content)
        if request.action == "census":
            return self._census()
        self.inquiries += request.action == "ready"
        if self.silent:
            return None
        if request.action == "ready":
            return packed({"number": request.number}, {})
        return self._train(request)

    def _census(self) -> RecordDict | Error | None:
        self.censuses += 1
        if self.lost:
            return self.lost.pop(0)
        counts = {part: [10] * len(self.clients) for part in ("train", "validation", "test")}
        about = {"identity": self.identity, "classes": 2, "task": "classes", "shape": [3], **counts}
        return packed({"clients": self.clients, **about, **self.census}, {})

    def _train(self, request: Request) -> RecordDict | Error | object:
        if self.broken:
            return Error(1, "out of memory")
        self.trained += request.clients
        if self.lost_replies:
            self.lost_replies -= 1
            return LOST
        return packed({"number": request.number, "clients": list(request.clients)}, {})


class Grid:
    """Nodes by their ids, which have answered as soon as they are asked."""

    def __init__(self, **nodes: Peer) -> None:
        self.nodes = {int(name[1:]): node for name, node in nodes.items()}
        self.replies: dict[str, Message] = {}
        self.held: list[tuple[str, Message]] = []
        self.numbers = itertools.count()

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"message-{next(self.numbers)}"
            message.metadata.__dict__["_message_id"] = name
            self.deliver(name, message)
            names.append(name)
        return names

    def deliver(self, name, message):
        answer = self.nodes[message.metadata.dst_node_id].answer(message)
        if answer is LOST:
            return
        if answer is None:
            self.held.append((name, message))
        else:
            self.replies[name] = Message(answer, reply_to=message)

    def release(self):
        """Nodes that were silent are done with what they were asked."""
        held, self.held = self.held, []
        for name, message in held:
            self.deliver(name, message)

    def pull_messages(self, names):
        return [self.replies.pop(name) for name in names if name in self.replies]


def gathered(grid: Grid, nodes: int | None = None, members: Members | None = None, **settings) -> Exchange:
    settings = {"timeout": 0.2, **settings}
    exchange = Exchange(grid, FlowerSettings(nodes=nodes or len(grid.nodes), **settings), NAME, members or Members())
    exchange.gather()
    return exchange


def ask(exchange: Exchange, clients, number: int = 0):
    def make_request(some):
        return Request("train", NAME, number, 10, tuple(some), weights=torch.zeros(2))

    def read(asked, content):
        return Answers(dict.fromkeys(wholes(head_of(content), "clients"), "fine"))

    return exchange.ask(Question(number, make_request, read), clients)


class Clock:
    """Time that passes only when somebody waits for it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
