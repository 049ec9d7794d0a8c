import os

import pytest
import torch

from holdfast.errors import CheckpointError
from holdfast.federated.engine.store import RowStore

WIDTH = 5


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_row_is_the_initial_one_until_it_is_written(kind):
    store = RowStore(4, torch.arange(5.0, dtype=kind))
    store.write(torch.tensor([2]), torch.full((1, WIDTH), 7.0, dtype=kind))
    assert store.written.tolist() == [False, False, True, False]
    rows = store.read(torch.tensor([3, 2]))
    assert rows.tolist() == [[0, 1, 2, 3, 4], [7] * WIDTH]
    assert rows.dtype == kind


def test_reading_gives_a_copy():
    store = RowStore(2, torch.zeros(WIDTH))
    store.write(torch.tensor([0]), torch.ones(1, WIDTH))
    store.read(torch.tensor([0])).fill_(9)
    assert store.read(torch.tensor([0])).tolist() == [[1] * WIDTH]


def test_what_a_checkpoint_refers_to_survives_any_number_of_later_writes(tmp_path):
    store = RowStore(3, torch.zeros(WIDTH), tmp_path / "rows")
    store.write(torch.tensor([0, 1]), torch.tensor([[1.0], [2.0]]).expand(2, WIDTH))
    saved = store.state_dict()
    for value in (10.0, 11.0, 12.0):
        store.write(torch.tensor([1, 2]), torch.full((2, WIDTH), value))
    assert store.read(torch.tensor([1]))[0, 0] == 12
    again = RowStore(3, torch.zeros(WIDTH), tmp_path / "rows")
    again.load_state_dict(saved)
    assert again.read(torch.arange(3))[:, 0].tolist() == [1, 2, 0]
    again.write(torch.tensor([1]), torch.full((1, WIDTH), 5.0))
    third = RowStore(3, torch.zeros(WIDTH), tmp_path / "rows")
    third.load_state_dict(saved)
    assert third.read(torch.arange(3))[:, 0].tolist() == [1, 2, 0]


def test_checkpoints_one_after_another_keep_the_newest():
    store = RowStore(1, torch.zeros(WIDTH))
    client = torch.tensor([0])
    for value in range(1, 6):
        store.write(client, torch.full((1, WIDTH), float(value)))
        saved = store.state_dict()
        store.write(client, torch.full((1, WIDTH), -1.0))
        store.load_state_dict(saved)
        assert store.read(client)[0, 0] == value


def test_rows_that_were_never_written_take_no_room(tmp_path):
    store = RowStore(500, torch.zeros(100_000), tmp_path / "rows")
    store.write(torch.tensor([7]), torch.ones(1, 100_000))
    store.state_dict()
    assert (tmp_path / "rows").stat().st_blocks * 512 < 2_000_000
    assert (tmp_path / "rows").stat().st_size == 2 * 500 * 100_000 * 4


def test_forked_processes_see_each_others_rows():
    store = RowStore(2, torch.zeros(WIDTH))
    child = os.fork()
    if child == 0:
        store.write(torch.tensor([1]), torch.full((1, WIDTH), 3.0))
        os._exit(0)
    os.waitpid(child, 0)
    assert store.written.tolist() == [False, True]
    assert store.read(torch.tensor([1])).tolist() == [[3] * WIDTH]


def test_a_file_of_another_federation_is_refused(tmp_path):
    RowStore(3, torch.zeros(WIDTH), tmp_path / "rows")
    with pytest.raises(CheckpointError, match="same federation"):
        RowStore(4, torch.zeros(WIDTH), tmp_path / "rows")
