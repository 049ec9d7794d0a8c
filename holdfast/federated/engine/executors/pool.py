"""Clients on worker processes, each with one torch thread: for models whose cost is in the arithmetic.

Workers are forks, so they see the data without a copy. The shared model, what clients send and the personal models lie
in shared memory; what goes through pipes is which clients to run and small numbers, as plain lists (tensors would be
sent through files). Chunks are handed to whoever is
free: results do not depend on who ran them. The server has one torch thread too, or it would take the workers' cores.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import torch
from torch import Tensor

from holdfast.errors import FederationError
from holdfast.federated.engine.client_runtime import Assignment, ClientRuntime
from holdfast.federated.engine.executors.base import Executor
from holdfast.federated.engine.shared_memory import shared_zeros
from holdfast.federated.metrics.scoring import ClientScores, PartName
from holdfast.federated.personalization.base import PostHocPersonalizer
from holdfast.primitives.memory import keep_freed_memory
from holdfast.primitives.threads import torch_threads

#: An action, its arguments, and for messages the clients and what they are asked in.
Job = tuple[str, tuple[Any, ...], Tensor, str]


class WorkerTraceback(Exception):  # noqa: N818 - no error of its own
    """Where an error happened in a worker: the cause of what the server raises, so that it is printed with it."""

    def __init__(self, trace: str) -> None:
        super().__init__("in a worker:\n" + trace)


class WorkerPool(Executor):
    """Runs chunks on forked workers.

    Args:
        runtime: the clients, the network and the personal models; must not change afterwards.
        chunk: clients that a worker stacks.
        workers: number of processes; one per core by default.
        capacity: largest number of clients in a round.
    """

    def __init__(
        self, runtime: ClientRuntime, chunk: int, workers: int | None = None, capacity: int | None = None
    ) -> None:
        super().__init__(runtime, chunk)
        self.workers = workers or os.cpu_count() or 1
        rows = capacity or runtime.settings.largest_cohort(len(runtime.clients))
        kind = runtime.network.initial.dtype
        self._received = shared_zeros(runtime.message, dtype=kind)
        self._model = self._received[: runtime.network.size]
        self._updates = shared_zeros(rows, runtime.message, dtype=kind)
        self._losses = shared_zeros(rows, dtype=torch.float64)
        self._alone = ExitStack()
        self._alone.enter_context(torch_threads(1))
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(self.workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._work, args=(theirs, [*self._pipes, ours]), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def train(self, assignments: Sequence[Assignment], received: Tensor, updates: Tensor, losses: Tensor) -> None:
        """Hand out assignments; results arrive in shared memory."""
        self._received.copy_(received)
        jobs, first = [], 0
        for assignment in assignments:
            work = (assignment.number, assignment.clients.tolist(), assignment.drawn.tolist(), first)
            jobs.append(("train", work, assignment.clients, f"round {assignment.number + 1}"))
            first += len(assignment.clients)
        self._run(jobs)

    def personalize(self, method: PostHocPersonalizer, chunks: Sequence[Tensor], received: Tensor) -> None:
        """Hand out chunks; models go to the store."""
        self._model.copy_(received)
        self._run([("tune", (method, chunk.tolist()), chunk, method.label) for chunk in chunks])

    def score(self, chunks: Sequence[Tensor], part: PartName, shared: Tensor, label: str | None) -> list[ClientScores]:
        """Hand out chunks; scores come back through the pipes."""
        self._model.copy_(shared)
        counted = torch.int64 if self.runtime.network.criterion.is_accuracy else torch.float64
        kinds = (torch.int64, torch.float64, counted, torch.int64)
        jobs = [("score", (chunk.tolist(), part, label), chunk, "evaluation") for chunk in chunks]
        return [
            ClientScores(*(torch.tensor(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))
            for columns in self._run(jobs)
        ]

    def close(self) -> None:
        """End the workers."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
        self._pipes, self._processes = [], []
        self._alone.close()

    def _buffers(self, clients: int) -> tuple[Tensor, Tensor]:
        if clients > len(self._updates):
            raise FederationError(f"a round of {clients} clients was asked of a pool made for {len(self._updates)}")
        return self._updates[:clients], self._losses[:clients]

    # ---------------------------------------------------------------------------------------------- server's side

    def _run(self, jobs: Sequence[Job]) -> list[Any]:
        """Hand each free worker the next job until all are done; results in the order of the jobs."""
        results: list[Any] = [None] * len(jobs)
        waiting = iter(enumerate(jobs))
        busy: dict[Connection, int] = {}

        def hand_out(pipe: Connection) -> None:
            place, job = next(waiting, (None, None))
            if place is not None and job is not None:
                with _reporting(job):
                    pipe.send(job[:2])
                busy[pipe] = place

        for pipe in self._pipes:
            hand_out(pipe)
        while busy:
            for ready in wait(list(busy)):
                pipe = cast(Connection, ready)
                place = busy.pop(pipe)
                results[place] = self._receive(pipe, jobs[place])
                hand_out(pipe)
        return results

    def _receive(self, pipe: Connection, job: Job) -> Any:
        with _reporting(job):
            failure, result = pipe.recv()
        if failure is not None:
            sentence, trace = failure
            raise FederationError(
                f"clients {job[2][0]} to {job[2][-1]} failed in {job[3]}: {sentence}"
            ) from WorkerTraceback(trace)
        return result

    # ---------------------------------------------------------------------------------------------- worker's side

    def _work(self, pipe: Connection, others: list[Connection]) -> None:
        for other in others:
            other.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        keep_freed_memory()
        actions: dict[str, Callable[..., Any]] = {"train": self._train, "tune": self._tune, "score": self._score}
        while True:
            try:
                message = pipe.recv()
            except EOFError:
                return
            if message is None:
                return
            action, arguments = message
            answer: tuple[tuple[str, str] | None, Any]
            try:
                answer = (None, actions[action](*arguments))
            except Exception as error:  # whatever a user's code raises is shown as it was, by the server
                answer = ((f"{type(error).__name__}: {error}", traceback.format_exc()), None)
            pipe.send(answer)

    def _train(self, number: int, clients: list[int], drawn: list[int], first: int) -> None:
        rows = slice(first, first + len(clients))
        assignment = Assignment(number, torch.tensor(clients), torch.tensor(drawn))
        self.runtime.train(assignment, self._received, self._updates[rows], self._losses[rows])

    def _tune(self, method: PostHocPersonalizer, clients: list[int]) -> None:
        self.runtime.personalize(method, torch.tensor(clients), self._model)

    def _score(self, clients: list[int], part: PartName, label: str | None) -> list[list[float]]:
        scores = self.runtime.score(torch.tensor(clients), part, self._model, label)
        return [scores.clients.tolist(), scores.loss.tolist(), scores.correct.tolist(), scores.count.tolist()]


@contextmanager
def _reporting(job: Job) -> Iterator[None]:
    """Turn the loss of a worker into a sentence."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise FederationError(
            f"a worker ended while it ran clients {job[2][0]} to {job[2][-1]} in {job[3]}; most often the system was "
            "out of memory: use fewer --workers or a smaller --chunk"
        ) from error
