"""Columns of a table or pieces of a file side by side: what NumPy and Arrow compute does not hold Python's lock.

The thread that asks takes its share of the work. Waiting for others to begin would cost it more than that on a machine
with other work, where a thread that slept is not woken at once, and what others never begin is done all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Result = TypeVar("Result")
Other = TypeVar("Other")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `work` gives for each item, in order, by as many threads as Arrow uses; the first item's error is raised."""
    shared = _Shared(work, items)
    while shared.take():
        pass
    return [future.result() for future in shared.futures]


def in_threads_one_by_one(work: Callable[[Item], Result], items: Iterable[Item], use: Callable[[Result], None]) -> None:
    """The same, where `use` takes each result in turn while others are made, and what it does not keep is freed."""
    shared = _Shared(work, items)
    try:
        while shared.futures:
            if not shared.futures[0].done():
                shared.take()
            use(shared.futures.popleft().result())
    finally:
        shared.tasks.clear()


def side_by_side(work: Callable[[], Result], other: Callable[[], Other]) -> tuple[Result, Other]:
    """What both give."""
    shared = _Shared(lambda each: each(), (work, other))
    while shared.take():
        pass
    first, second = shared.futures
    return first.result(), second.result()  # type: ignore[return-value]


class _Shared(Generic[Item, Result]):
    """Items that whoever has time takes, the first one first.

    Attributes:
        futures: what becomes of them, in order.
        tasks: those that nobody has taken.
    """

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item]) -> None:
        self._work = work
        self.tasks: deque[tuple[Item, Future[Result]]] = deque((item, Future()) for item in items)
        self.futures = deque(future for _, future in self.tasks)
        for _ in range(min(pa.cpu_count(), len(self.tasks)) - 1):
            _helpers(pa.cpu_count() - 1).submit(self._take_all)

    def take(self) -> bool:
        """Work on the next item; whether there was one."""
        try:
            item, future = self.tasks.popleft()
        except IndexError:
            return False
        try:
            future.set_result(self._work(item))
        except BaseException as error:  # it is raised where the result is asked for
            self.tasks.clear()  # of later items nobody will ask
            future.set_exception(error)
        return True

    def _take_all(self) -> None:
        while self.take():
            pass


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Threads that are started once. A forked process has none of them, and does without."""
    return ThreadPoolExecutor(threads, thread_name_prefix="holdfast-columns")
