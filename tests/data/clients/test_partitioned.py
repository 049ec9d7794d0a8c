from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import (
    AtRandom,
    ByClasses,
    ByDirichlet,
    ByKey,
    Examples,
    federation,
    load,
    load_federation,
    partition,
)
from holdfast.data.clients.partitioned import pooled
from holdfast.errors import ConfigError, DataError


def toy(n: int = 400) -> Examples:
    """Every input is its row number, so a row can be followed wherever it goes."""
    return Examples.of(torch.arange(float(n))[:, None], torch.arange(n) % 4, sources=torch.arange(n) // 100)


@pytest.mark.parametrize(
    "how", [ByClasses(8, 2), ByClasses(8, 2, "random", "equal"), ByDirichlet(9, 0.3), AtRandom(7, "power-law"), ByKey()]
)
def test_every_row_goes_to_one_part_of_one_client_with_its_label(how) -> None:
    clients = partition(toy(), how, seed=3)
    rows = torch.cat([clients.train.inputs, clients.validation.inputs, clients.test.inputs]).flatten().long()
    labels = torch.cat([clients.train.labels, clients.validation.labels, clients.test.labels])
    assert len(rows.unique()) == len(rows) <= 400
    assert torch.equal(labels, rows % 4)
    total = clients.train.counts + clients.validation.counts + clients.test.counts
    assert torch.allclose(clients.test.counts / total, torch.full((len(clients),), 0.2), atol=0.11)


def test_the_partition_depends_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - what others do to the global generator must not matter
    one = partition(toy(), ByDirichlet(9), seed=5).fingerprint()
    np.random.seed(2)  # noqa: NPY002
    assert partition(toy(), ByDirichlet(9), seed=5).fingerprint() == one
    assert partition(toy(), ByDirichlet(9), seed=6).fingerprint() != one


def test_a_natural_key_gives_each_client_its_own_rows() -> None:
    clients = partition(toy(), ByKey("sources"))
    assert clients.names == ("0", "1", "2", "3")
    for client in range(4):
        assert set((clients.train.of(client)[0].flatten() // 100).tolist()) == {client}
    with pytest.raises(DataError, match="these examples have no groups"):
        partition(toy(), ByKey("groups"))


def test_groups_name_the_clients() -> None:
    examples = Examples.of(torch.zeros(40, 1), [0, 1] * 20, attributes=[0] * 20 + [1] * 20)
    assert partition(examples, ByKey("groups")).names == ("y0/a0", "y0/a1", "y1/a0", "y1/a1")
    assert partition(examples, ByKey("attributes")).names == ("a0", "a1")


def test_inputs_are_as_a_model_takes_them() -> None:
    pixels = torch.full((20, 1), 51, dtype=torch.uint8)
    examples = Examples.of(pixels, [0, 1] * 10, transform=lambda batch: batch / 255)
    assert partition(examples, AtRandom(2)).train.inputs.unique().tolist() == [pytest.approx(0.2)]
    tokens = Examples.of({"ids": torch.zeros(20, 3)}, [0, 1] * 10)
    with pytest.raises(DataError, match="named inputs such as tokens and masks"):
        partition(tokens, AtRandom(2))


def test_pooling_joins_the_three_parts() -> None:
    splits = load("coloured-digits")
    whole = pooled(splits)
    assert len(whole) == len(splits.train) + len(splits.validation) + len(splits.test)
    assert whole.group_names == splits.train.group_names
    last = torch.tensor([len(whole) - 1])
    assert torch.equal(whole.gather(last)[0], splits.test.gather(torch.tensor([len(splits.test) - 1]))[0])


def test_any_pooled_data_set_is_dealt_out_by_name(tmp_path: Path) -> None:
    clients = load_federation("digits", tmp_path, seed=1, partition="dirichlet", clients=20, alpha=0.1)
    assert len(clients) == 20 and clients.input_shape == (1, 8, 8)
    assert sum(part.counts.sum() for part in (clients.train, clients.validation, clients.test)) == 1797
    assert len(load_federation("partitioned", tmp_path, source="digits", partition="iid", clients=3)) == 3
    groups = load_federation("coloured-digits", tmp_path, partition="groups")
    assert groups.names[0].count("/") == 1
    with pytest.raises(ConfigError, match="has no partition 'dirichlett'; did you mean 'dirichlet'"):
        federation("digits", partition="dirichlett")


def test_bundled_digits_need_no_files(tmp_path: Path) -> None:
    clients = load_federation("digits-clients", tmp_path)
    summary = clients.summary()
    assert summary.clients == 50
    assert summary.classes_per_client.largest == 5
    assert summary.train.total + summary.validation.total + summary.test.total == 1797
    assert summary.train.smallest >= 8


def test_of_fewer_than_five_classes_a_client_has_all_unless_a_number_is_asked_for() -> None:
    clients = partition(toy(), ByClasses(8))
    assert all(
        len(client_labels.unique()) == 4 for client_labels in clients.train.labels.split(clients.train.counts.tolist())
    )
    with pytest.raises(ConfigError, match="can't have 5 of 4 classes; give a number of classes per client"):
        partition(toy(), ByClasses(8, 5))
