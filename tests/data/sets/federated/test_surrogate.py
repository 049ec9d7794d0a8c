from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import load_federation
from holdfast.data.sets.federated.surrogate import generate
from holdfast.errors import ConfigError

HERE = Path()


@pytest.mark.parametrize("q", [5, 10])
def test_clients_emit_their_classes_only(q) -> None:
    clients = load_federation("surrogate", HERE, seed=2, q=q)
    assert len(clients) == 100 and clients.input_shape == (20,)
    assert set(clients.test.counts.tolist()) == {100}
    for client in (0, 8, 99):
        allowed = {(client + j) % 10 for j in range(q)}
        for part in (clients.train, clients.validation, clients.test):
            assert set(part.of(client)[1].tolist()) <= allowed


def test_sizes_have_mean_60_floored_plus_five() -> None:
    sizes = torch.stack([load_federation("surrogate", HERE, seed=seed).train.counts for seed in range(3)]).double()
    assert 15 <= sizes.min() <= 30, "a size is 5 + 60 (10 + LogNormal) / mean, and the mean is about 43"
    assert sizes.mean(1).tolist() == pytest.approx([64.5] * 3, abs=0.2)
    assert (sizes[0] != sizes[1]).any()


def test_inputs_are_standard_normal_and_rules_differ_between_clients() -> None:
    inputs, labels = generate(np.full(20, 2000), 10, np.random.default_rng(0))
    assert np.abs(inputs.mean(0)).max() < 0.025
    assert np.abs(np.cov(inputs.T) - np.eye(20)).max() < 0.035

    def fitted(rows: slice) -> np.ndarray:
        x, y = inputs[rows], np.eye(10)[labels[rows]]
        return np.linalg.lstsq(x, y - y.mean(0), rcond=None)[0]

    def right(rule: np.ndarray, rows: slice) -> float:
        return float(((inputs[rows] @ rule).argmax(1) == labels[rows]).mean())

    own, other = fitted(slice(0, 1500)), fitted(slice(2000, 3500))
    held_out = slice(1500, 2000)
    assert right(own, held_out) > right(other, held_out) + 0.05 > 0.35, "related, and not the same"


def test_a_hundred_thousand_clients_are_three_tensors() -> None:
    clients = load_federation("synthetic-many", HERE, clients=20_000)
    assert len(clients) == 20_000
    assert clients.train.counts.min() >= 2
    assert clients.train.counts.double().mean() == pytest.approx(12, abs=0.1)
    assert clients.train.inputs.dtype == torch.float32
    assert clients.check() is clients
    assert len(load_federation("synthetic-many", HERE, clients=1)) == 1
    with pytest.raises(ConfigError, match="0 clients of 12 examples make no federation"):
        load_federation("synthetic-many", HERE, clients=0)
    with pytest.raises(ConfigError, match="can't have 11 of 10 classes"):
        load_federation("surrogate", HERE, q=11)


def test_the_same_seed_gives_the_same_clients() -> None:
    marks = {load_federation("surrogate", HERE, seed=seed).fingerprint() for seed in (0, 0, 1)}
    assert len(marks) == 2
