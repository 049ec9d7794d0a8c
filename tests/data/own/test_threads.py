"""Work that is shared between the thread that asks and others, which may never come."""

import threading
from unittest import mock

import pyarrow as pa
import pytest

from holdfast.data.own import threads
from holdfast.data.own.threads import in_threads, in_threads_one_by_one, side_by_side


class Nobody:
    """Helpers as a forked process has them."""

    def submit(self, work):
        pass


@pytest.fixture(params=["with helpers", "without"])
def helpers(request):
    made = threads._helpers if request.param == "with helpers" else lambda count: Nobody()
    with mock.patch.object(threads, "_helpers", made), mock.patch.object(pa, "cpu_count", lambda: 3):
        yield


def test_results_come_in_order_however_work_is_dealt_out(helpers):
    assert in_threads(lambda number: number * number, range(50)) == [number * number for number in range(50)]
    assert in_threads(str, []) == []
    used = []
    in_threads_one_by_one(str, range(50), used.append)
    assert used == [str(number) for number in range(50)]
    assert side_by_side(lambda: 1, lambda: "b") == (1, "b")


def test_work_may_share_its_own_work(helpers):
    assert in_threads(lambda row: sum(in_threads(lambda x: row * x, range(4))), range(6)) == [
        6 * row for row in range(6)
    ]


def test_the_first_error_is_raised_and_later_items_are_left(helpers):
    begun, used = [], []

    def work(number):
        begun.append(number)
        if number in (3, 4):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="3"):
        in_threads(work, range(1_000))
    assert len(begun) < 1_000
    with pytest.raises(ValueError, match="3"):
        in_threads_one_by_one(work, range(1_000), used.append)
    assert used == [0, 1, 2]


def test_an_error_of_the_use_ends_the_work(helpers):
    made = []

    def use(number):
        raise KeyError(number)

    with pytest.raises(KeyError):
        in_threads_one_by_one(made.append, range(10_000), use)
    assert len(made) < 10_000


def test_helpers_take_part():
    met = threading.Barrier(2, timeout=30)
    with mock.patch.object(pa, "cpu_count", lambda: 2):
        in_threads(lambda _: met.wait(), range(2))  # nobody would meet alone
