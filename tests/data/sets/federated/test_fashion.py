from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data.clients.partitions import deal_in_turn, rolling_classes
from holdfast.data.readers.idx import FashionMnist, read_digits
from holdfast.data.sets.federated.fashion import FederatedFashion, published_counts, standardise_pixels
from holdfast.errors import ConfigError


def test_the_published_totals_whatever_the_global_generator() -> None:
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    train, test = published_counts()
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    per_device, tested = train.sum(1), test.sum(1)
    assert (per_device.sum(), per_device.min(), per_device.max(), np.median(per_device)) == (61_251, 31, 1378, 88)
    assert per_device.mean() == pytest.approx(122.5, abs=0.05)
    assert (tested.sum(), tested.min()) == (11_254, 7)
    assert tested.mean() == pytest.approx(22.5, abs=0.05)


def test_dealing_in_turn_is_the_slow_loop_with_a_pointer_per_class() -> None:
    labels = np.random.default_rng(0).integers(0, 4, 60)
    owned, counts = rolling_classes(15, 2, 4), np.random.default_rng(1).integers(1, 6, (15, 2))
    expected, pointer = [], dict.fromkeys(range(4), 0)
    for client in range(15):
        mine: list[int] = []
        for label, count in zip(owned[client], counts[client], strict=True):
            of_class = [row for row in range(60) if labels[row] == label]
            if pointer[label] + count > len(of_class):
                pointer[label] = 0
            mine += of_class[pointer[label] : pointer[label] + count]
            pointer[label] += count
        expected.append(mine)
    dealt = deal_in_turn(labels, owned, counts)
    assert [dealt.of(client).tolist() for client in range(15)] == expected
    assert len(set(dealt.rows)) < len(dealt.rows), "classes ran out and were read again"


def test_pixels_are_standardised_by_the_training_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 2, 2)).astype(np.uint8)
    images[:, 0, 0] = 9
    train = images[:4].astype(np.float64)
    expected = (images - train.mean(0)) / (train.std(0) + 0.001)
    np.testing.assert_allclose(standardise_pixels(images, 4), expected, atol=1e-4)
    assert standardise_pixels(images, 4)[:, 0, 0].tolist() == [0.0] * 6


@pytest.mark.shared_data
def test_500_clients_of_the_real_images(shared_data: Path) -> None:
    clients = FederatedFashion().load(shared_data, seed=1)
    both = clients.train.counts + clients.validation.counts
    assert (len(clients), int(both.sum()), int(both.min()), int(both.max())) == (500, 61_251, 31, 1378)
    assert torch.equal(clients.validation.counts, both // 10)
    assert int(clients.test.counts.sum()) == 11_254
    assert clients.input_shape == (1, 28, 28)
    for user in (0, 7, 499):
        assert set(clients.train.of(user)[1].tolist()) <= {(user + j) % 10 for j in range(5)}
    digits = read_digits(FashionMnist, shared_data)
    first = np.flatnonzero(digits.labels[digits.n_train :] == 0)[0] + digits.n_train
    pixels = standardise_pixels(digits.images, digits.n_train)[first]
    assert torch.equal(clients.test.of(0)[0][0, 0], torch.from_numpy(pixels)), "device 0 reads class 0 from its start"


@pytest.mark.shared_data
def test_fewer_clients_are_the_first_ones_of_the_same_partition(shared_data: Path) -> None:
    few, all_of_them = (FederatedFashion(clients).load(shared_data) for clients in (3, 500))
    assert len(few) == 3
    for client in range(3):
        for part in ("train", "validation", "test"):
            ours, theirs = (each.parts[part].of(client) for each in (few, all_of_them))
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("clients", [0, 501])
def test_a_partition_of_500_has_no_other_number_of_clients(clients) -> None:
    with pytest.raises(ConfigError, match=f"has 500 clients and {clients} are wanted"):
        FederatedFashion(clients)
