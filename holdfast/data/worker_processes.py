"""The processes behind `holdfast.data.workers`: each serves requests over a pipe of its own.

A pipe per process and no queue that they share: one that dies blocks no other, what belongs to a dropped request is
thrown away when it arrives, and when the training process ends, however it ends, the pipes close and the workers leave.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import NamedTuple, NoReturn

import numpy as np
import torch
import torch.multiprocessing  # from here on, tensors go between processes through shared memory
from torch import Tensor

from holdfast.data.inputs import InputBatch, Inputs
from holdfast.errors import HoldfastError
from holdfast.streams import derive_seed, torch_stream

#: What is done to a batch of training inputs, with its random stream.
Augment = Callable[[Tensor, torch.Generator], Tensor]


class Request(NamedTuple):
    """A mini-batch to be read.

    Attributes:
        positions: of the inputs, int64.
        stream: seed and names of the random stream to augment by; none leaves the inputs as they are.
        places: of the inputs in a larger mini-batch of which they are a part; none where they are all of it.
        size: of that mini-batch.
    """

    positions: Tensor
    stream: tuple[int | str, ...] | None = None
    places: Tensor | None = None
    size: int = 0


class Failure(NamedTuple):
    """What a worker couldn't read: the place in the request, and why."""

    place: int
    reason: str


class Crew:
    """Processes that serve requests, each over a pipe of its own, so that one that dies blocks no other."""

    def __init__(self, count: int, sets: Sequence[Inputs], augment: Augment | None) -> None:
        context = multiprocessing.get_context()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._loads = [0] * count
        self._sent = 0
        self._where: dict[int, int] = {}  # ticket to worker, as long as somebody waits for it
        self._arrived: dict[int, InputBatch | Failure] = {}
        forks = context.get_start_method() == "fork"
        # Before the processes are started, so that they end with this one however it ends.
        self._end = Finalize(self, _end, (self._pipes, self._processes), exitpriority=10)
        try:
            for number in range(count):
                ours, theirs = context.Pipe()
                self._pipes.append(ours)
                # A fork inherits the pipes of those before it, and as long as it had them open these would not see
                # the end of this process.
                inherited = list(self._pipes) if forks else []
                process = context.Process(
                    target=_serve,
                    args=(theirs, inherited, sets, augment),
                    name=f"holdfast-reader-{number}",
                    daemon=True,
                )
                process.start()
                self._processes.append(process)
                theirs.close()
        except BaseException:
            self.close()
            raise

    def send(self, place: int, request: Request) -> int:
        """Ask the worker with the least to do; gives a ticket for the answer."""
        worker = self._loads.index(min(self._loads))
        self._sent += 1
        try:
            self._pipes[worker].send((self._sent, place, request.positions.numpy(), request.stream))
        except OSError:
            self._died(worker)
        self._loads[worker] += 1
        self._where[self._sent] = worker
        return self._sent

    def result(self, ticket: int) -> InputBatch | Failure:
        """Wait for an answer; those of others that come before it are put aside."""
        worker = self._where[ticket]
        while ticket not in self._arrived:
            try:
                other, answer = self._pipes[worker].recv()
            except (EOFError, OSError):
                self._died(worker)
            self._loads[worker] -= 1
            if other in self._where:
                self._arrived[other] = answer
        del self._where[ticket]
        return self._arrived.pop(ticket)

    def forget(self, tickets: Iterable[int]) -> None:
        """Nobody waits for these any more."""
        for ticket in tickets:
            self._where.pop(ticket, None)
            self._arrived.pop(ticket, None)

    def close(self) -> None:
        """End the processes."""
        self._end()

    def _died(self, worker: int) -> NoReturn:
        process = self._processes[worker]
        process.join(1)
        raise HoldfastError(
            f"a worker process that reads inputs died (exit code {process.exitcode}); it may have run out of memory, "
            "or of shared memory (look at /dev/shm); read in the training process with --workers 0, or with fewer"
        )


def _end(pipes: list[Connection], processes: list[BaseProcess]) -> None:
    """Close the pipes, which ends the workers; one that doesn't hear is killed."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(pipe: Connection, inherited: list[Connection], sets: Sequence[Inputs], augment: Augment | None) -> None:
    """A worker: read what is asked for until the other side is gone."""
    for other in inherited:
        other.close()
    # What a cluster or a terminal sends to the whole group is for the training process, which needs its next batch to
    # end well. It takes the workers with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            ticket, place, positions, stream = pipe.recv()
            request = Request(torch.from_numpy(positions), stream)
            _seed(request)
            pipe.send((ticket, _read(sets[place], request, augment)))


def _seed(request: Request) -> None:
    """Random changes that a user's own Dataset makes follow from the request, not from the worker that reads it."""
    seed = 0 if request.stream is None else derive_seed(int(request.stream[0]), *request.stream[1:], "read")
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - a user's transforms draw from the global generator


def _read(inputs: Inputs, request: Request, augment: Augment | None) -> InputBatch | Failure:
    try:
        return augmented(inputs.gather(request.positions), request, augment)
    except Exception as error:  # whatever a user's function raises is told where it can be seen
        return Failure(_culprit(inputs, request.positions), _reason(error))


def _culprit(inputs: Inputs, positions: Tensor) -> int:
    """The place of the first input that can't be read by itself; 0 where each can."""
    for place in range(len(positions)):
        try:
            inputs.gather(positions[place : place + 1])
        except Exception:
            return place
    return 0


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"


def augmented(inputs: InputBatch, request: Request, augment: Augment | None) -> InputBatch:
    """The inputs, changed at random where the request names a stream for it.

    An augmentation draws for a mini-batch as a whole. So that a part is changed as it would be inside the whole, its
    first input stands in for the places that others have.
    """
    if augment is None or request.stream is None or not isinstance(inputs, Tensor):
        return inputs
    seed, *names = request.stream
    stream, places = torch_stream(int(seed), *names), request.places
    if places is None:
        return augment(inputs, stream)
    row = torch.zeros(request.size, dtype=torch.int64)
    row[places] = torch.arange(len(places))
    return augment(inputs[row], stream)[places]
