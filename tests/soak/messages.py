"""Thousands of damaged replies to a server, at the level of bytes; it must go on, and the honest node must count.

``python -m tests.soak.messages --cases 10000`` runs them and writes results/soak/messages.log; a sample runs in ``make
test`` and others in ``make soak`` (test_messages.py). A case has a number, which repeats it: ``--first 123 --cases 1``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import Message
from flwr.app.error import Error

from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Request, array, head_of, packed, whole, wholes
from holdfast.integrations.flower.server import exchange as exchange_module
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.questions import Answers, Question
from holdfast.integrations.flower.settings import FlowerSettings
from tests.integrations.flower.byte_grid import ByteGrid, Sent, as_sent

LOG = Path(__file__).parents[2] / "results" / "soak" / "messages.log"
NAME = "0123456789abcdef" * 2
SIZE = 6
HONEST, HOSTILE = 10, 11

Dice = random.Random


# ------------------------------------------------------------------------------------------------------- damage


def flipped(dice: Dice, content: bytes) -> bytes:
    """Some bytes are others."""
    changed = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8, 64])):
        if changed:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def cut(dice: Dice, content: bytes) -> bytes:
    """Only a part is there."""
    start, end = sorted(dice.randrange(len(content) + 1) for _ in range(2))
    return dice.choice([content[:end], content[start:], content[:start] + content[end:]])


def grown(dice: Dice, content: bytes) -> bytes:
    """Something is put in, or said again."""
    place = dice.randrange(len(content) + 1)
    more = dice.choice([dice.randbytes(dice.randrange(1, 200)), b"\0" * dice.choice([1, 1000, 300_000]), content])
    return content[:place] + more + content[place:]


def renumbered(dice: Dice, content: bytes) -> bytes:
    """A number in it is another: negative, enormous, not a number."""
    digits = [place for place, each in enumerate(content) if 48 <= each <= 57]
    if not digits:
        return flipped(dice, content)
    place = dice.choice(digits)
    other = dice.choice([b"-1", b"99999999999999999999", b"1e999", b"NaN", b"0", b"Infinity", b"\xd9\xa3", b""])
    return content[:place] + other + content[place + 1 :]


def nested(dice: Dice, content: bytes) -> bytes:
    """Its body is nested very deep, or is another kind of value; the head says the right length."""
    head, _, body = content.partition(b"\0")
    deep = dice.choice([10, 1_000, 30_000])
    body = dice.choice(
        [b"[" * deep, b'{"a":' * deep, b"[" * deep + b"]" * deep, b"null", b"[]", b"5", b'""', b"\xff" * 50]
    )
    return head.rpartition(b" ")[0] + f" {len(body)}\0".encode() + body


def relabelled(dice: Dice, content: bytes) -> bytes:
    """It says that it is something else."""
    kinds = [
        b"Message",
        b"RecordDict",
        b"ArrayRecord",
        b"ConfigRecord",
        b"MetricRecord",
        b"Array",
        b"ArrayChunk",
        b"os",
    ]
    return dice.choice(kinds) + b" " + content.partition(b" ")[2]


def wrong_body(dice: Dice, content: bytes) -> bytes:
    """A body of random bytes of the length that the head says."""
    head, _, body = content.partition(b"\0")
    return head + b"\0" + dice.randbytes(len(body))


CHANGES: list[Callable[[Dice, bytes], bytes]] = [flipped, cut, grown, renumbered, nested, relabelled, wrong_body]


def of_its_own(sent: Sent) -> Sent:
    """The same under other ids: a SuperLink knows objects by their hash, so nobody can damage another's."""
    ids = {name: hashlib.sha256(f"hostile {name}".encode()).hexdigest() for name in sent.objects}
    objects = {}
    for name, content in sent.objects.items():
        for old, new in ids.items():
            content = content.replace(old.encode(), new.encode())  # noqa: PLW2901
        objects[ids[name]] = content
    sent.objects, sent.root = objects, ids[sent.root]
    sent.message.metadata.message_id = sent.root
    return sent


def damaged(dice: Dice, reply: Message) -> Sent:
    """What arrives instead of a reply."""
    sent = of_its_own(as_sent(reply))
    names = list(sent.objects)
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        name, other = dice.choice(names), dice.choice(names)
        content = sent.objects[name]
        what = dice.randrange(12)
        if what == 0:
            del sent.objects[name]
            names.remove(name)
        elif what == 1:
            sent.objects[name] = sent.objects[other]
        elif what == 2:
            old, new = name.encode(), dice.choice([other, "0" * 64, "z" * 64, "../../etc/passwd"]).encode()
            sent.objects = {key: each.replace(old, new) for key, each in sent.objects.items()}
        elif what == 3:
            sent.root = sent.message.metadata.message_id = dice.choice([other, "0" * 64, "", "\x1b[2J"])
        else:
            sent.objects[name] = dice.choice(CHANGES)(dice, content)
        if not names:
            break
    return sent


def odd_head(dice: Dice, content) -> None:
    """Plain values that are well formed and wrong."""
    head = content["holdfast"]
    key = dice.choice([*head, "more", "\x1b[2J", "clients", "number", "format"])
    values = [0, -1, 2**63 - 1, 1.5, float("nan"), "x" * dice.choice([1, 10_000]), "\x1b[31m\n", b"\0" * 99, True]
    lists = [[], [1, 1], [-1], [2**62], ["a"], [True, False], [0.5], list(range(dice.choice([3, 2000])))]
    head[key] = dice.choice([*values, *lists])


# ------------------------------------------------------------------------------------------------------- a server


class Case:
    """An honest and a hostile node, and the server between them."""

    def __init__(self) -> None:
        for name, seconds in (("_SHORTEST", 0.0), ("_LONGEST", 0.0), ("_LOOK", 0.0)):
            setattr(exchange_module, name, seconds)
        self.dice, self.census_too = Dice(0), False
        self.grid = ByteGrid({HONEST: self.honest, HOSTILE: self.hostile})
        self.exchange = self.fresh()

    def fresh(self) -> Exchange:
        self.census_too = False
        exchange = Exchange(self.grid, FlowerSettings(nodes=2, timeout=0.05, most_faults=10**9), NAME)
        exchange.members.most_faults = 10**9
        exchange.gather()
        return exchange

    def honest(self, message: Message) -> Message:
        return Message(self.content(message, 0), reply_to=message)

    def content(self, message: Message, client: int):
        request = Request.of(message.content)
        if request.action == "census":
            counts = {part: [10] for part in ("train", "validation", "test")}
            about = {"identity": f"node of {client}", "classes": 2, "task": "classes", "shape": [3]}
            return packed({"clients": [client], **counts, **about}, {})
        values = torch.full((1, SIZE), client + 1.0)
        head = {"number": request.number, "clients": [client], "examples": [10], "refused": [], "reasons": []}
        return packed(head, {"updates": values, "losses": torch.zeros(1, dtype=torch.float64)})

    def hostile(self, message: Message):
        content = self.content(message, 1)
        if Request.of(message.content).action == "census" and not self.census_too:
            return Message(content, reply_to=message)
        what = self.dice.randrange(10)
        if what == 0:
            return Message(
                Error(self.dice.randrange(300), self.dice.choice(["", "\x1b[2J", "x" * 10_000])), reply_to=message
            )
        if what <= 2:
            odd_head(self.dice, content)
            if what == 1:
                return Message(content, reply_to=message)
        return damaged(self.dice, Message(content, reply_to=message))

    def run(self, number: int) -> str:
        """What became of a case: ``counted`` or the kind of the fault; an exception is a failure of the server."""
        self.dice = Dice(number)
        if number % 10 == 9:  # a census is damaged
            self.exchange = Exchange(self.grid, FlowerSettings(nodes=1, timeout=0.05), NAME)
            self.census_too = True
            self.exchange.gather()
        got = self.ask(number)
        assert torch.equal(got[0], torch.ones(SIZE)), "the honest node's update does not count"
        if 1 in got:
            assert got[1].shape == (SIZE,) and bool(got[1].isfinite().all())
            self.exchange = self.fresh() if self.census_too else self.exchange
            return "counted"
        for fault in self.exchange.faults:
            assert fault.reason.strip(": ") == fault.reason, fault.reason
            assert fault.reason.isprintable() and len(fault.reason) < 1_500, fault.reason
        kind = self.exchange.faults[0].kind
        self.exchange.faults.clear()
        if self.census_too:
            self.exchange = self.fresh()
        return kind

    def ask(self, number: int) -> dict[int, torch.Tensor]:
        def make_request(some):
            return Request("train", NAME, number, 2, tuple(some), weights=torch.zeros(SIZE))

        def read(asked, content) -> Answers:
            head = head_of(content)
            if whole(head, "number") != number or not set(ids := wholes(head, "clients")) <= set(asked):
                raise ValueError("not the reply")
            updates = array(content, "updates", (len(ids), SIZE), torch.float32)
            array(content, "losses", (len(ids),), torch.float64)
            if not updates.isfinite().all():
                return Answers({}, dict.fromkeys(ids, "not finite"))
            return Answers(dict(zip(ids, updates, strict=True)))

        def limits(some: int) -> Limits:
            return Limits.of(some, {"updates": 4 * SIZE * some, "losses": 8 * some})

        got = self.exchange.ask(Question(number, make_request, read, limits), [0, 1])
        self.exchange._orders.clear()
        self.grid.objects.clear()
        self.grid.replies.clear()
        return got


def main() -> None:
    """Run many cases and write the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    case, found, began = Case(), Counter(), time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(options.first, options.first + options.cases):
        found[case.run(number)] += 1
    grown_by = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    about = {
        "cases": options.cases, "first": options.first, "outcomes": dict(found.most_common()),
        "processor seconds": round(time.process_time() - began, 1), "memory grew by, MB": grown_by,
    }  # fmt: skip
    LOG.write_text(json.dumps(about, indent=1) + "\n")
    print(json.dumps(about))


if __name__ == "__main__":
    main()
