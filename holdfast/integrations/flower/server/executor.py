"""Clients on SuperNodes: one message per node and round, checked when it comes back.

The server's side of a federation runs on this as on any other executor. What is different: clients may be missing. A
round's rows are those of the clients that answered, and `joined` says who that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from flwr.app import RecordDict
from torch import Tensor

from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.engine.executors import Executor
from holdfast.federated.metrics.scoring import ClientScores, PartName
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.integrations.flower.messages.arrays import RejectedError
from holdfast.integrations.flower.messages.wire import Request, array, head_of, whole, wholes, words
from holdfast.integrations.flower.server.exchange import Exchange
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
        got = self._ask(assignment.number, assignment.clients, "train", received, self._read_round)
        for place, client in enumerate(assignment.clients.tolist()):
            if client in got:
                updates[place], losses[place] = got[client]
        self._here = torch.tensor([client in got for client in assignment.clients.tolist()], dtype=torch.bool)

    def _read_round(self, expected: Sequence[int], content: RecordDict) -> tuple[dict[int, Any], dict[int, str]]:
        head = head_of(content)
        ids = _ids(content, expected, self._number)
        size, kind = self.runtime.network.size, self.runtime.network.initial.dtype
        updates = array(content, "updates", (len(ids), size), kind)
        losses = array(content, "losses", (len(ids),), torch.float64)
        bad = dict(zip(wholes(head, "refused"), words(head, "reasons"), strict=False))
        good = {}
        for row, (client, examples) in enumerate(zip(ids, wholes(head, "examples", len(ids)), strict=True)):
            if examples != (claimed := self.exchange.facts[client].train):
                bad[client] = f"the client claims {examples} examples and had said {claimed}"
            elif not (updates[row].isfinite().all() and losses[row].isfinite()):
                bad[client] = "the update is not finite"
            else:
                good[client] = (updates[row], losses[row])
        return good, bad

    # ---------------------------------------------------------------------------------------------- afterwards

    def personalize(self, method: PostHocPersonalizer, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Ask clients to tune; models stay where they are."""
        self._scored = None
        number = self.runtime.settings.rounds + list(self.runtime.post_hoc).index(method.label)
        everybody = torch.cat(list(chunks)).sort().values
        self._ask(number, everybody, "tune", received, self._read_names, labels=(method.label,))
        self._tuned.append(method.label)

    def _read_names(self, expected: Sequence[int], content: RecordDict) -> tuple[dict[int, Any], dict[int, str]]:
        return dict.fromkeys(_ids(content, expected, self._number), True), {}

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
        self._part, total = part, len(self.runtime.clients)
        words_ = tuple(label or "" for label in labels)
        got = self._ask(self._number, torch.arange(total), "score", shared, self._read_scores, labels=words_, part=part)
        for place, label in enumerate(labels):
            loss, correct = torch.zeros(total, dtype=torch.float64), torch.zeros(total, dtype=torch.int64)
            count = torch.zeros(total, dtype=torch.int64)
            for client, (losses, rights, examples) in got.items():
                loss[client], correct[client], count[client] = losses[place], rights[place], examples
            self._scores[label] = ClientScores(torch.arange(total), loss, correct, count)

    def _read_scores(self, expected: Sequence[int], content: RecordDict) -> tuple[dict[int, Any], dict[int, str]]:
        ids, models = _ids(content, expected, self._number), 1 + len(self.runtime.alongside) + len(self.runtime.joint)
        models += len(self._tuned)
        loss = array(content, "loss", (models, len(ids)), torch.float64)
        correct = array(content, "correct", (models, len(ids)), torch.int64)
        count = array(content, "count", (len(ids),), torch.int64)
        good, bad = {}, {}
        for place, client in enumerate(ids):
            rights = correct[:, place]
            if int(count[place]) != getattr(self.exchange.facts[client], self._part):
                bad[client] = f"the client reports on {int(count[place])} examples and had said otherwise"
            elif not loss[:, place].isfinite().all() or bool(((rights < 0) | (rights > count[place])).any()):
                bad[client] = "the scores can't be"
            else:
                good[client] = (loss[:, place], rights, int(count[place]))
        return good, bad

    # ---------------------------------------------------------------------------------------------- messages

    _number = 0
    _part: str = "test"

    def _ask(
        self, number: int, clients: Tensor, action: Any, weights: Tensor, read: Any, **further: Any
    ) -> dict[int, Any]:
        self._number = number
        total, name = len(self.runtime.clients), self.exchange.federation

        def make_request(some: Sequence[int]) -> Request:
            return Request(action, name, number, total, tuple(some), weights=weights, **further)

        return self.exchange.ask(number, clients.tolist(), make_request, read)


def _ids(content: RecordDict, expected: Sequence[int], number: int) -> list[int]:
    """The clients that a reply is about, if it is the reply to this request."""
    head = head_of(content)
    if (claimed := whole(head, "number")) != number:
        raise RejectedError(f"the reply is for round {claimed + 1} and not {number + 1}")
    ids = wholes(head, "clients")
    if len(set(ids)) < len(ids) or not set(ids) <= set(expected):
        raise RejectedError("the reply is about clients that were not asked")
    return ids
