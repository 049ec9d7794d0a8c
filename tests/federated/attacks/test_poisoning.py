"""Who is malicious, and their labels (spec, checks C24 and C27)."""

import logging

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.attacks import malicious_clients, poison_labels


class TestMaliciousClients:
    @pytest.mark.parametrize(
        ("clients", "ratio", "count"), [(23, 0.5, 11), (500, 0.5, 250), (205, 0.1, 20), (100, 0.29, 29), (10, 0.0, 0)]
    )
    def test_there_are_exactly_so_many_and_they_are_distinct(self, clients: int, ratio: float, count: int) -> None:
        ids = malicious_clients(clients, ratio, seed=3)
        assert len(ids) == count
        assert ids.tolist() == sorted(set(ids.tolist()))
        assert all(0 <= client < clients for client in ids.tolist())

    def test_the_seed_decides_and_a_larger_share_contains_a_smaller_one(self) -> None:
        assert torch.equal(malicious_clients(100, 0.2, 1), malicious_clients(100, 0.2, 1))
        assert not torch.equal(malicious_clients(100, 0.2, 1), malicious_clients(100, 0.2, 2))
        assert set(malicious_clients(100, 0.2, 1).tolist()) < set(malicious_clients(100, 0.5, 1).tolist())

    def test_everybody_is_drawn_equally_often(self) -> None:
        counts = torch.zeros(20)
        for seed in range(1000):
            counts[malicious_clients(20, 0.3, seed)] += 1
        expected = 300
        assert float(((counts - expected) ** 2 / expected).sum()) < 19 * 0.7 + 4 * (2 * 19 * 0.7) ** 0.5

    @pytest.mark.parametrize("ratio", [-0.1, 1.0, 1.5, float("nan")])
    def test_a_share_that_leaves_nobody_benign_is_refused(self, ratio: float) -> None:
        with pytest.raises(ConfigError, match="share of malicious clients"):
            malicious_clients(10, ratio, 0)

    def test_a_share_that_rounds_to_nobody_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert len(malicious_clients(5, 0.1, 0)) == 0
        assert "nobody is malicious" in caplog.text


class TestPoisonLabels:
    def test_two_classes_are_swapped_on_malicious_clients_only(self) -> None:
        labels = torch.tensor([0, 1, 1, 0, 1, 0])
        owners = torch.tensor([0, 0, 1, 1, 2, 2])
        poisoned = poison_labels(labels, owners, torch.tensor([0, 2]), classes=2, seed=0)
        assert poisoned.tolist() == [1, 0, 1, 0, 0, 1]
        assert labels.tolist() == [0, 1, 1, 0, 1, 0]

    def test_more_classes_are_drawn_uniformly_so_that_one_in_so_many_stays(self) -> None:
        classes, n = 10, 20_000
        labels = torch.arange(n) % classes
        owners = torch.arange(n) // 100
        malicious = torch.arange(0, 200, 2)
        poisoned = poison_labels(labels, owners, malicious, classes, seed=1)
        theirs = owners % 2 == 0
        assert torch.equal(poisoned[~theirs], labels[~theirs])
        stayed = (poisoned == labels)[theirs].double().mean()
        assert float(stayed) == pytest.approx(0.1, abs=4 * (0.09 / 10_000) ** 0.5)
        counts = torch.bincount(poisoned[theirs], minlength=classes).double()
        assert float(((counts - 1000) ** 2 / 1000).sum()) < 27.9
        pairs = torch.bincount(labels[theirs] * classes + poisoned[theirs], minlength=100).double()
        assert float(((pairs - 100) ** 2 / 100).sum()) < 148

    def test_what_a_client_draws_depends_on_nobody_else(self) -> None:
        labels, owners = torch.zeros(60, dtype=torch.int64), torch.arange(60) % 6
        few = poison_labels(labels, owners, torch.tensor([4]), 5, seed=0)
        many = poison_labels(labels, owners, torch.tensor([1, 3, 4]), 5, seed=0)
        assert torch.equal(few[owners == 4], many[owners == 4])
        assert not torch.equal(many[owners == 3], many[owners == 4])
        assert not torch.equal(few, poison_labels(labels, owners, torch.tensor([4]), 5, seed=1))

    def test_nobody_malicious_or_without_data_changes_nothing(self) -> None:
        labels, owners = torch.tensor([2, 1, 0]), torch.tensor([0, 0, 1])
        for malicious in (torch.empty(0, dtype=torch.int64), torch.tensor([5])):
            assert torch.equal(poison_labels(labels, owners, malicious, 3, 0), labels)
            assert torch.equal(poison_labels(labels.clamp(max=1), owners, malicious, 2, 0), labels.clamp(max=1))
