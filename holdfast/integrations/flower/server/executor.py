"""Clients on SuperNodes: one message per node and round, checked when it comes back.

The server's side of a federation runs on this as on any other executor. What is different: clients may be missing. A
round's rows are those of the clients that answered, and `joined` says who that is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from flwr.app import RecordDict
from torch import Tensor

from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.engine.executors import Executor
from holdfast.federated.metrics.scoring import ClientScores, PartName
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.objects import Limits
from holdfast.integrations.flower.messages.wire import Action, Request, array, head_of, whole, wholes, words
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.questions import Answers, Question, Reader
from holdfast.primitives.threads import torch_threads


class FlowerExecutor(Executor):
    """Runs client functions on the nodes of a Flower run.

    Args:
        runtime: what the server knows of the clients; it has no data.
        exchange: talks to the nodes.
    """

    def __init__(self, runtime: ClientRuntime, exchange: Exchange) -> None:
        super().__init__(runtime, max(len(runtime.clients), 1))
        self.exchange = exchange
        self._alone = ExitStack()
        self._alone.enter_context(torch_threads(1))
        self._here = torch.ones(0, dtype=torch.bool)
        self._tuned: list[str] = []
        self._scores: dict[str | None, ClientScores] = {}
        self._scored: tuple[str, Tensor] | None = None

    def close(self) -> None:
        """Give torch its threads back; nodes stay."""
        self._alone.close()

    # ---------------------------------------------------------------------------------------------- a round

    def chunks(self, clients: Tensor) -> list[Tensor]:
        """All of them: nodes cut their own clients into chunks."""
        return [torch.sort(clients).values]

    def round(self, number: int, clients: Tensor, drawn: Tensor, received: Tensor) -> tuple[Tensor, Tensor]:
        """One round; rows of the clients that answered, ascending. Clients themselves know what they have drawn."""
        updates, losses = super().round(number, clients, drawn, received)
        return updates[self._here], losses[self._here]

    def joined(self, clients: Tensor) -> Tensor:
        """Those of the last round's clients that answered, ascending."""
        return torch.sort(clients).values[self._here]

    def train(self, assignments: Sequence[Assignment], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Ask the clients of a round, and put what they send into rows; those of clients that are missing are NaN."""
        (assignment,) = assignments
        self._scored = None
        updates.fill_(torch.nan)
        network, number = self.runtime.network, assignment.number
        sizes = {"updates": self.runtime.message * network.initial.element_size(), "losses": 8}
        got = self._ask(
            number, assignment.clients, "train", received, read=partial(self._read_round, number), sizes=sizes
        )
        for place, client in enumerate(assignment.clients.tolist()):
            if client in got:
                updates[place], losses[place] = got[client]
                if late := self.exchange.stale.get(client, 0):
                    updates[place] *= staleness_weight(late)
        self._here = torch.tensor([client in got for client in assignment.clients.tolist()], dtype=torch.bool)

    def _read_round(self, number: int, expected: Sequence[int], content: RecordDict) -> Answers:
        head = head_of(content)
        ids = _ids(content, expected, number)
        size, kind = self.runtime.message, self.runtime.network.initial.dtype
        updates = array(content, "updates", (len(ids), size), kind)
        losses = array(content, "losses", (len(ids),), torch.float64)
        declined = dict(zip(wholes(head, "refused"), words(head, "reasons"), strict=False))
        good, bad = {}, {}
        for row, (client, examples) in enumerate(zip(ids, wholes(head, "examples", len(ids)), strict=True)):
            if examples != (claimed := self.exchange.members.facts[client].train):
                bad[client] = f"the client claims {examples} examples and had said {claimed}"
            elif not (updates[row].isfinite().all() and losses[row].isfinite()):
                bad[client] = "the update is not finite"
            else:
                good[client] = (updates[row], losses[row])
        return Answers(good, bad, declined)

    # ---------------------------------------------------------------------------------------------- afterwards

    def personalize(self, method: PostHocPersonalizer, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Ask clients to tune; models stay where they are."""
        self._scored = None
        number = self.runtime.settings.rounds + list(self.runtime.post_hoc).index(method.label)
        everybody = torch.cat(list(chunks)).sort().values
        read = partial(_read_names, number)
        self._ask(number, everybody, "tune", received, read=read, sizes={}, labels=(method.label,))
        self._tuned.append(method.label)

    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Scores of clients, as they report them; of all models at once, so that several reports take one message."""
        if self._scored is None or self._scored[0] != part or not torch.equal(self._scored[1], shared):
            self._score_models(part, shared)
            self._scored = (part, shared.clone())
        every = self._scores[label]
        fields = (every.loss, every.correct, every.count)
        return [ClientScores(chunk, *(values[chunk] for values in fields)) for chunk in chunks]

    def _score_models(self, part: PartName, shared: Tensor) -> None:
        trained = [method.label for method in (*self.runtime.alongside, *self.runtime.joint)]
        labels: list[str | None] = [None, *trained, *self._tuned]
        total, words_ = len(self.runtime.clients), tuple(label or "" for label in labels)
        sizes = {"loss": 8 * len(labels), "correct": 8 * len(labels), "count": 8}
        read = partial(self._read_scores, self._number, part, len(labels))
        everybody, further = torch.arange(total), {"labels": words_, "part": part}
        got = self._ask(self._number, everybody, "score", shared, read=read, sizes=sizes, **further)
        for place, label in enumerate(labels):
            loss, correct = torch.zeros(total, dtype=torch.float64), torch.zeros(total, dtype=torch.int64)
            count = torch.zeros(total, dtype=torch.int64)
            for client, (losses, rights, examples) in got.items():
                counted = min(examples, self.exchange.members.cap(client))
                right = int(rights[place])
                right = right if counted == examples else right * counted // examples
                loss[client], correct[client], count[client] = losses[place], right, counted
            self._scores[label] = ClientScores(torch.arange(total), loss, correct, count)

    def _read_scores(
        self, number: int, part: str, models: int, expected: Sequence[int], content: RecordDict
    ) -> Answers:
        ids = _ids(content, expected, number)
        loss = array(content, "loss", (models, len(ids)), torch.float64)
        correct = array(content, "correct", (models, len(ids)), torch.int64)
        count = array(content, "count", (len(ids),), torch.int64)
        good, bad = {}, {}
        for place, client in enumerate(ids):
            rights = correct[:, place]
            if int(count[place]) != getattr(self.exchange.members.facts[client], part):
                bad[client] = f"the client reports on {int(count[place])} examples and had said otherwise"
            elif not loss[:, place].isfinite().all() or bool(((rights < 0) | (rights > count[place])).any()):
                bad[client] = "the scores can't be"
            else:
                good[client] = (loss[:, place], rights, int(count[place]))
        return Answers(good, bad)

    # ---------------------------------------------------------------------------------------------- messages

    _number = 0

    def _ask(
        self,
        number: int,
        clients: Tensor,
        action: Action,
        weights: Tensor,
        *,
        read: Reader,
        sizes: Mapping[str, int],
        **further: Any,
    ) -> dict[int, Any]:
        """Ask clients; `sizes` are the bytes that each array of a reply has per client."""
        self._number = number
        total, name = len(self.runtime.clients), self.exchange.federation

        def make_request(some: Sequence[int]) -> Request:
            return Request(action, name, number, total, tuple(some), weights=weights, **further)

        def limits(some: int) -> Limits:
            return Limits.of(some, {array_: size * some for array_, size in sizes.items()})

        return self.exchange.ask(Question(number, make_request, read, limits, action == "train"), clients.tolist())


def staleness_weight(late: int) -> float:
    """What an update is multiplied by that is `late` rounds late: (1 + late)^(-1/2).

    The polynomial of asynchronous federated optimization (Xie et al., 2019, https://arxiv.org/abs/1903.03934, section
    5.2) with its exponent of one half. The update itself shrinks, so rules that compare updates see a smaller one.
    """
    return 1.0 / math.sqrt(1.0 + late)


def _read_names(number: int, expected: Sequence[int], content: RecordDict) -> Answers:
    return Answers(dict.fromkeys(_ids(content, expected, number), True))


def _ids(content: RecordDict, expected: Sequence[int], number: int) -> list[int]:
    """The clients that a reply is about, if it is the reply to this request."""
    head = head_of(content)
    if (claimed := whole(head, "number")) != number:
        raise RejectedError(f"the reply is for round {claimed + 1} and not {number + 1}")
    ids = wholes(head, "clients")
    if len(set(ids)) < len(ids) or not set(ids) <= set(expected):
        raise RejectedError("the reply is about clients that were not asked")
    return ids
