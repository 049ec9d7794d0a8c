"""Worker processes that read inputs ahead of the training, where each is decoded or computed when it is needed.

Inputs that are one tensor need none of this. For the others a few processes read the next mini-batches while the
current one is trained on; tensors come back through shared memory. What is read is a function of the request alone, so
the number of workers changes nothing but the time. A worker that fails says which example it was; one that dies is
named; where none can be started the inputs are read in the process itself, and a warning says so.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from holdfast.data.dataset_items import DatasetInputs
from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch, Inputs, LazyInputs, SubsetInputs
from holdfast.data.worker_processes import Augment, Crew, Failure, Request, augmented
from holdfast.errors import DataError, HoldfastWarning

_AHEAD = 2  # requests that each worker has at a time: one in work, one waiting
_PIECE = 64  # examples in a request, where a caller wants many: shared memory is often small
_MOST = 8  # workers by default


def default_workers(inputs: Inputs) -> int:
    """Workers for a set: one for each core but the one that trains, up to 8; none for what is in memory."""
    if not is_lazy(inputs) or multiprocessing.current_process().daemon:  # daemons may not have children
        return 0
    return min(_MOST, max(1, _cores() - 1))


def is_lazy(inputs: Inputs) -> bool:
    """Whether inputs are read one by one when they are needed."""
    return isinstance(_origin(inputs), LazyInputs | DatasetInputs)


def read_ahead(inputs: Inputs, requests: Iterable[Request], augment: Augment | None = None) -> Iterator[InputBatch]:
    """The requested mini-batches in order; by workers and ahead of time where the inputs have some."""
    if isinstance(inputs, WorkerInputs):
        yield from inputs.ahead(requests, augment)
        return
    for request in requests:
        yield augmented(inputs.gather(request.positions), request, augment)


class ReadingWorkers:
    """Some processes that read the inputs of one or several sets; started when first asked, closed with `close`.

    Args:
        count: how many; 0 reads in the calling process.
        augment: what is done to inputs whose request names a random stream.
    """

    def __init__(self, count: int, augment: Augment | None = None) -> None:
        self.count = count
        self.augment = augment
        self._owner = os.getpid()
        self._sets: list[Inputs] = []
        self._crew: Crew | None = None
        self._serial = count == 0

    def reading(self, examples: Examples) -> Examples:
        """The same examples, with inputs that the workers read."""
        if self.count == 0 or isinstance(examples.inputs, WorkerInputs):
            return examples
        self.close()  # processes know the sets that there were when they started
        self._sets.append(examples.inputs)
        inputs = WorkerInputs(examples.inputs, self, len(self._sets) - 1, examples.called)
        return replace(examples, inputs=inputs)

    def crew(self) -> Crew | None:
        """The running processes; none in a fork of the process that they belong to, or where they can't be started."""
        if self._serial or os.getpid() != self._owner:
            return None
        if self._crew is None:
            try:
                self._crew = Crew(self.count, [_without_threads(inputs) for inputs in self._sets], self.augment)
            except (pickle.PicklingError, AttributeError, TypeError, AssertionError, OSError) as error:
                self._serial = True
                warnings.warn(
                    f"no worker process can read these inputs ({' '.join(str(error).split())[:200]}), so they are read "
                    "in the training process; give a function of a module for reading, or --workers 0",
                    HoldfastWarning,
                    stacklevel=2,
                )
        return self._crew

    def close(self) -> None:
        """End the processes; they are started again if something is still to be read."""
        if self._crew is not None and os.getpid() == self._owner:
            self._crew.close()
        self._crew = None


@dataclass(frozen=True)
class WorkerInputs:
    """Inputs that worker processes read.

    Attributes:
        parent: the inputs themselves.
        workers: who reads them.
        place: of the set among those of the workers.
        called: how messages call an example.
    """

    parent: Inputs
    workers: ReadingWorkers = field(repr=False, compare=False)
    place: int
    called: Callable[[int], str] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.parent)

    def __reduce__(self) -> tuple[Callable[[Inputs], Inputs], tuple[Inputs]]:
        """Another process, such as a DataLoader's, gets the inputs without the workers of this one."""
        return _itself, (self.parent,)

    def gather(self, positions: Tensor) -> InputBatch:
        """The inputs at `positions`, in pieces that are read at the same time."""
        # What makes a batch of its items itself may pad them to the longest: such a batch is one piece.
        if len(positions) < 2 * self.workers.count or not isinstance(_origin(self.parent), LazyInputs):
            return self.parent.gather(positions)
        size = min(_PIECE, -(-len(positions) // self.workers.count))
        pieces = self.ahead(map(Request, torch.split(positions, size)))
        return torch.cat([piece for piece in pieces if isinstance(piece, Tensor)])

    def ahead(self, requests: Iterable[Request], augment: Augment | None = None) -> Iterator[InputBatch]:
        """The requested mini-batches in order; later ones are read while earlier ones are in use."""
        crew = self.workers.crew()
        if crew is None:
            yield from read_ahead(self.parent, requests, augment)
            return
        by_worker = augment is self.workers.augment
        tickets, waiting = deque[int](), deque[Request]()
        try:
            for request in requests:
                waiting.append(request)
                tickets.append(crew.send(self.place, request if by_worker else Request(request.positions)))
                if len(tickets) >= _AHEAD * self.workers.count:
                    yield self._result(crew, tickets, waiting, None if by_worker else augment)
            while tickets:
                yield self._result(crew, tickets, waiting, None if by_worker else augment)
        finally:
            crew.forget(tickets)

    def _result(self, crew: Crew, tickets: deque[int], waiting: deque[Request], augment: Augment | None) -> InputBatch:
        answer, request = crew.result(tickets.popleft()), waiting.popleft()
        if isinstance(answer, Failure):
            which = self.called(int(request.positions[answer.place]))
            raise DataError(f"{which} can't be read: {answer.reason}")
        return augmented(answer, request, augment)


def _without_threads(inputs: Inputs) -> Inputs:
    """In a worker, threads would only take the cores from each other."""
    if isinstance(inputs, SubsetInputs):
        return replace(inputs, parent=_without_threads(inputs.parent))
    return replace(inputs, workers=0) if isinstance(inputs, LazyInputs) else inputs


def _origin(inputs: Inputs) -> Inputs:
    """What a subset, or a subset of one, is taken from."""
    return _origin(inputs.parent) if isinstance(inputs, SubsetInputs) else inputs


def _itself(inputs: Inputs) -> Inputs:
    return inputs


def _cores() -> int:
    """Cores that this process may use: a scheduler may have given it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
