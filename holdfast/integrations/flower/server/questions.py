"""What clients are asked, what of it is under way, and what their nodes say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import RecordDict

from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request


@dataclass(frozen=True, eq=False)
class Answers:
    """What a reply says, by client.

    Attributes:
        good: what is made of those that answered well.
        bad: why others' answers can't be used.
        declined: why the node did not let others take part; it may have its reasons.
    """

    good: Mapping[int, Any]
    bad: Mapping[int, str] = field(default_factory=dict)
    declined: Mapping[int, str] = field(default_factory=dict)


#: Takes the clients that were asked and the content of the reply; raises where the whole reply is of no use.
Reader = Callable[[Sequence[int], RecordDict], Answers]


@dataclass(frozen=True, eq=False)
class Question:
    """What clients are asked.

    Attributes:
        number: of the round, from 0.
        make_request: makes the request for the clients of one node.
        read: makes something of a reply.
        limits: what a reply about so many clients may be.
        trains: whether it is a round of training, whose answers may count later.
    """

    number: int
    make_request: Callable[[Sequence[int]], Request]
    read: Reader
    limits: Callable[[int], Limits] = Limits.of
    trains: bool = True


@dataclass(frozen=True)
class Order:
    """A message under way: to which node, about whom; a census has no question.

    Attributes:
        node: that it goes to.
        limits: what its reply may be.
        sent: when; a moment of the monotonic clock.
        expires: when nobody waits for the reply any more.
        clients: that are asked.
        question: what they are asked.
        before: of the question whether a node is free, the names of the orders that it was given before.
    """

    node: int
    limits: Limits
    sent: float
    expires: float
    clients: tuple[int, ...] = ()
    question: Question | None = None
    before: frozenset[str] = frozenset()

    @property
    def is_census(self) -> bool:
        """Whether the node is asked whom it hosts."""
        return self.question is None and not self.before


@dataclass
class Round:
    """A question that is open: who was asked, who has answered, who failed and how."""

    question: Question
    wanted: set[int]
    got: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def waiting(self) -> set[int]:
        """Who may still answer."""
        return self.wanted - self.got.keys() - self.failed.keys()
