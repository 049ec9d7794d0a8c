"""Worker processes read what the training process would have read, tell what they can't read, and leave nothing."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data import Examples
from holdfast.data.inputs import LazyInputs, TensorInputs
from holdfast.data.worker_processes import Crew, Request
from holdfast.data.workers import ReadingWorkers, default_workers, read_ahead
from holdfast.errors import DataError, HoldfastError, HoldfastWarning
from holdfast.training import Curator


def one(position: int) -> torch.Tensor:
    return torch.full((2, 3), float(position))


def lazy(n: int = 40, read=one) -> Examples:
    return Examples.of(LazyInputs(read, n), [0, 1] * (n // 2), ids=torch.arange(n) + 1000)


def shifted(inputs: torch.Tensor, stream: torch.Generator) -> torch.Tensor:
    return inputs + torch.rand(len(inputs), 1, 1, generator=stream)


@pytest.fixture
def workers():
    made = ReadingWorkers(2, shifted)
    yield made
    made.close()
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("holdfast-reader")]


def test_what_workers_read_is_what_is_there(workers):
    examples = workers.reading(lazy())
    wanted = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.equal(examples.inputs.gather(wanted)[:, 0, 0], wanted.float())
    requests = [Request(wanted[start : start + 7], (3, "augment", start)) for start in range(0, 40, 7)]
    read = list(read_ahead(examples.inputs, requests, shifted))
    serial = list(read_ahead(lazy().inputs, requests, shifted))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(read, serial, strict=True))
    assert not torch.equal(read[0][:, 0, 0], wanted[:7].float()), "so that the augmentation can be missed"


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 5))
def test_requests_that_are_dropped_disturb_nobody(sizes, taken):
    workers = ReadingWorkers(2)
    try:
        examples = workers.reading(lazy())
        requests = [Request(torch.arange(size)) for size in sizes]
        reading = read_ahead(examples.inputs, requests)
        for _, inputs in zip(range(taken), reading, strict=False):
            assert inputs.shape[1:] == (2, 3)
        reading.close()
        assert torch.equal(examples.inputs.gather(torch.arange(40))[:, 0, 0], torch.arange(40.0))
        crew = workers.crew()
        assert isinstance(crew, Crew) and not crew._arrived and not crew._where
    finally:
        workers.close()


def test_a_worker_that_fails_names_the_example_and_the_reason(workers):
    def read(position: int) -> torch.Tensor:
        if position == 13:
            raise FileNotFoundError("photos/owl.jpg")
        return one(position)

    examples = workers.reading(lazy(read=read))
    with pytest.raises(DataError, match=r"example 1013 can't be read: FileNotFoundError: photos/owl\.jpg"):
        examples.inputs.gather(torch.arange(40))
    assert torch.equal(examples.inputs.gather(torch.arange(12))[:, 0, 0], torch.arange(12.0)), "the others go on"


def test_a_worker_that_dies_is_a_sentence(workers):
    def read(position: int) -> torch.Tensor:
        if position == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return one(position)

    examples = workers.reading(lazy(read=read))
    with pytest.raises(HoldfastError, match=r"worker process that reads inputs died \(exit code -9\)"):
        examples.inputs.gather(torch.arange(40))


def test_signals_for_the_group_do_not_end_workers(workers):
    examples = workers.reading(lazy())
    examples.inputs.gather(torch.arange(40))
    for process in workers.crew()._processes:
        os.kill(process.pid, signal.SIGTERM)
    assert torch.equal(examples.inputs.gather(torch.arange(40))[:, 0, 0], torch.arange(40.0))


_PARENT = """
import multiprocessing, sys, time, torch
from tests.data.test_workers import lazy
from holdfast.data.workers import ReadingWorkers
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    workers = ReadingWorkers(2)
    read = workers.reading(lazy()).inputs.gather(torch.arange(40))
    assert torch.equal(read[:, 0, 0], torch.arange(40.0))
    print(*[process.pid for process in workers.crew()._processes], flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_with_a_training_process_that_is_killed(method, tmp_path):
    program = tmp_path / "parent.py"
    program.write_text(_PARENT)
    killed = subprocess.Popen([sys.executable, program, method], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in killed.stdout.readline().split()]
    assert len(pids) == 2 and all(map(_alive, pids))
    killed.kill()
    killed.wait()
    for _ in range(100):
        if not any(map(_alive, pids)):
            break
        time.sleep(0.1)
    assert not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_where_no_worker_can_be_started_one_line_says_so(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_context", multiprocessing.context.SpawnContext)
    workers = ReadingWorkers(2)
    examples = workers.reading(lazy(read=lambda position: one(position + 0)))  # no other process can import a lambda
    with pytest.warns(HoldfastWarning, match="no worker process can read these inputs") as told:
        assert torch.equal(examples.inputs.gather(torch.arange(40))[:, 0, 0], torch.arange(40.0))
        examples.inputs.gather(torch.arange(40))
    assert len(told) == 1


def test_by_default_what_is_in_memory_has_no_workers():
    assert default_workers(TensorInputs(torch.zeros(4, 2))) == 0
    assert default_workers(lazy().subset([1, 2, 3]).inputs) >= 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_curator_hands_out_the_same_batches_with_any_number_of_workers(count):
    curator = Curator(lazy(), batch_size=7, seed=1, augment=shifted, workers=count)
    plain = Curator(
        Examples.of(torch.stack([one(i) for i in range(40)]), [0, 1] * 20), batch_size=7, seed=1, augment=shifted
    )
    try:
        for _, _ in zip(curator.epochs(2), plain.epochs(2), strict=True):
            for mine, theirs in zip(curator, plain, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    finally:
        curator.close()


def test_a_set_of_ones_own_is_seeded_by_the_request_and_not_by_the_worker():
    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, position):
            return torch.rand(3), position % 2

    def epoch(count: int) -> torch.Tensor:
        curator = Curator(Examples.of(Noisy(), [0, 1] * 20), batch_size=10, workers=count)
        curator.start()
        try:
            return torch.cat([batch.inputs for batch in curator])
        finally:
            curator.close()

    assert torch.equal(epoch(1), epoch(3))
    assert len(epoch(2).unique()) == 120
