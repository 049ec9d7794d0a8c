"""The columns of a table side by side: what NumPy and Arrow compute does not hold Python's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Result = TypeVar("Result")
Other = TypeVar("Other")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `work` gives for each item, in order, by as many threads as Arrow uses; the first item's error is raised."""
    with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="holdfast-columns") as pool:
        return list(pool.map(work, items))


def in_threads_one_by_one(work: Callable[[Item], Result], items: Iterable[Item], use: Callable[[Result], None]) -> None:
    """The same, where `use` takes each result in turn while others are made, and what it does not keep is freed.

    No more than twice as many are made as there are threads before the first of them is taken.
    """
    threads = pa.cpu_count()
    with ThreadPoolExecutor(threads, thread_name_prefix="holdfast-pieces") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                if len(waiting) == 2 * threads:
                    use(waiting.popleft().result())
                waiting.append(pool.submit(work, item))
            while waiting:
                use(waiting.popleft().result())
        finally:
            for future in waiting:
                future.cancel()


def side_by_side(work: Callable[[], Result], other: Callable[[], Other]) -> tuple[Result, Other]:
    """What both give, the first in a thread of its own."""
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-beside") as pool:
        begun = pool.submit(work)
        done = other()
        return begun.result(), done
