"""Attacks that know their own update only (spec, checks C25 and C26)."""

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import mean
from holdfast.federated.attacks import (
    ATTACKS,
    Attack,
    Gaussian,
    LabelPoisoning,
    ModelReplacement,
    RandomUpdates,
    SignFlip,
)
from tests.federated.aggregation.rounds import random_round
from tests.federated.attacks.rounds import send


@pytest.mark.parametrize("attack", [attack() for attack in ATTACKS.values()], ids=lambda attack: attack.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_benign_rows_pass_and_the_honest_updates_are_not_touched(attack: Attack, dtype: torch.dtype) -> None:
    updates = random_round(0, 7, 30, dtype)
    before = updates.clone()
    sent = send(attack, updates, [1, 4])
    assert torch.equal(updates, before)
    benign = [0, 2, 3, 5, 6]
    assert torch.equal(sent[benign], updates[benign])
    assert sent.dtype == dtype
    assert torch.equal(sent[[1, 4]], updates[[1, 4]]) == (attack.name == "a1")
    assert torch.equal(send(attack, updates, []), updates)
    assert send(attack, updates, list(range(7))).isfinite().all()


def test_dittos_attackers_poison_their_labels_too_and_the_others_do_not() -> None:
    assert {name for name, attack in ATTACKS.items() if attack.poisons_labels} == {"a1", "a2", "a3"}
    assert ATTACKS.find("a1") is LabelPoisoning
    with pytest.raises(ConfigError, match="did you mean 'sign-flip'"):
        ATTACKS.find("signflip")


class TestRandomUpdates:
    def test_it_has_the_size_of_the_honest_update_and_nothing_else_of_it(self) -> None:
        updates = (
            torch.randn(40, 20_000, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.01, 2, 40)[:, None]
        )
        sent = send(RandomUpdates(), updates, list(range(40)))
        assert float((sent.norm(dim=1) / updates.norm(dim=1)).mean()) == pytest.approx(1, abs=0.02)
        assert float((sent.mean(1) / sent.std(1)).abs().max()) < 4 / 20_000**0.5
        assert float(torch.cosine_similarity(sent, updates).abs().max()) < 4 / 20_000**0.5

    def test_its_size_is_the_spread_of_coordinates_not_their_mean(self) -> None:
        updates = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(1)) + 5
        assert float(send(RandomUpdates(), updates, [0]).std()) == pytest.approx(1, abs=0.03)

    def test_an_update_of_one_coordinate_has_no_spread(self) -> None:
        assert send(RandomUpdates(), torch.tensor([[2.0], [1.0]]), [0]).tolist() == [[0.0], [1.0]]

    def test_every_round_client_and_seed_draws_its_own_and_the_cohort_does_not_matter(self) -> None:
        updates = random_round(2, 4, 50)
        sent = send(RandomUpdates(), updates, [0, 1])
        assert not torch.equal(sent[0] / sent[0].norm(), sent[1] / sent[1].norm())
        assert not torch.equal(sent[0], send(RandomUpdates(), updates, [0, 1], number=1)[0])
        assert not torch.equal(sent[0], send(RandomUpdates(), updates, [0, 1], seed=1)[0])
        assert torch.equal(sent[0], send(RandomUpdates(), updates[:2], [0])[0])


class TestModelReplacement:
    def test_the_boost_is_the_number_of_clients_exactly(self) -> None:
        updates = random_round(3, 10, 20, torch.float32)
        assert torch.equal(send(ModelReplacement(), updates, [2, 5])[[2, 5]], 10 * updates[[2, 5]])
        assert torch.equal(send(ModelReplacement(boost=3.5), updates, [2])[2], 3.5 * updates[2])

    def test_one_attacker_among_idle_clients_replaces_the_average(self) -> None:
        updates = torch.zeros(8, 20)
        updates[3] = random_round(4, 1, 20, torch.float32)[0]
        assert torch.equal(mean(send(ModelReplacement(), updates, [3])), updates[3])


def test_a_sign_flipper_reverses_its_own_update() -> None:
    updates = random_round(5, 4, 20)
    assert torch.equal(send(SignFlip(), updates, [1, 2])[[1, 2]], -updates[[1, 2]])
    assert torch.equal(send(SignFlip(scale=4.0), updates, [1])[1], -4 * updates[1])


def test_gaussian_noise_has_the_given_size() -> None:
    sent = send(Gaussian(sigma=0.3), torch.zeros(3, 20_000), [0, 2])
    assert float(sent[[0, 2]].std()) == pytest.approx(0.3, rel=0.02)
    assert not torch.equal(sent[0], sent[2])
