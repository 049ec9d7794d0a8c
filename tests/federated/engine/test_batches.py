import pytest
import torch

from holdfast.federated.engine.batches import BatchStream, pad


def test_a_walk_sees_every_example_once_but_the_tail():
    stream = BatchStream(seed=0, size=4)
    batches = stream.rows(client=3, examples=14, first=0, count=3)
    assert batches.shape == (3, 4)
    assert len(set(batches.flatten().tolist())) == 12
    again = stream.rows(3, 14, 3, 3)
    assert len(set(again.flatten().tolist())) == 12
    assert not torch.equal(batches, again)


@pytest.mark.parametrize("first", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_what_comes_next_depends_only_on_how_many_were_drawn(first, count):
    stream = BatchStream(seed=1, size=4)
    one_by_one = torch.cat([stream.rows(2, 14, number, 1) for number in range(first, first + count)])
    assert torch.equal(stream.rows(2, 14, first, count), one_by_one)


def test_clients_and_seeds_have_their_own_order():
    assert not torch.equal(BatchStream(0, 8).rows(0, 40, 0, 4), BatchStream(0, 8).rows(1, 40, 0, 4))
    assert not torch.equal(BatchStream(0, 8).rows(0, 40, 0, 4), BatchStream(1, 8).rows(0, 40, 0, 4))


def test_a_client_with_fewer_examples_than_a_batch_trains_on_all_of_them():
    """Other systems drop the incomplete batch, so that such a client trains on nothing."""
    batches = BatchStream(0, 8).rows(0, 3, 0, 4)
    assert batches.shape == (4, 3)
    assert all(sorted(batch) == [0, 1, 2] for batch in batches.tolist())


def test_in_order_means_in_order():
    assert BatchStream(0, 2, shuffle=False).rows(0, 5, 0, 3).tolist() == [[0, 1], [2, 3], [4, 0]]


def test_padded_batches_have_no_weight_where_they_are_padded():
    table, weights = pad([torch.tensor([[5, 6, 7], [8, 9, 5]]), torch.tensor([[3, 2]])], width=4)
    assert table.shape == (2, 2, 4)
    assert table[0].tolist() == [[5, 6, 7, 5], [8, 9, 5, 5]]
    assert table[1, 0, :2].tolist() == [3, 2]
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0], [0.5, 0.5, 0, 0]], dtype=torch.float64))
