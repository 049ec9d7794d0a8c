"""Attacks that see the benign updates, against byzfl and against the published search."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from holdfast.federated.attacks import InnerProduct, LittleIsEnough, MinMax, SignFlip, alie_z
from tests.federated.aggregation.rounds import random_round
from tests.federated.attacks.rounds import send
from tests.federated.byzantine import published

EVERY = [LittleIsEnough(1.0), InnerProduct(), MinMax("unit"), MinMax("sign"), MinMax("std")]


def agree(ours: Tensor, theirs: object) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(theirs), rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_byzfls_where_both_define_them(seed: int) -> None:
    byzfl = published()
    updates = random_round(seed, 12, 40)
    benign = updates[3:].numpy()
    agree(send(LittleIsEnough(z=1.3), updates, [0, 1, 2])[1], byzfl.ALittleIsEnough(1.3)(benign))
    agree(send(InnerProduct(epsilon=0.7), updates, [0, 1, 2])[0], byzfl.InnerProductManipulation(0.7)(benign))
    agree(send(InnerProduct(epsilon=1.0), updates, [0, 1, 2])[2], byzfl.SignFlipping()(benign))
    agree(send(SignFlip(), updates, [0])[0], byzfl.SignFlipping()(updates[:1].numpy()))


@pytest.mark.parametrize("attack", EVERY, ids=str)
def test_all_attackers_send_the_same_and_their_own_updates_do_not_matter(attack: MinMax) -> None:
    updates = random_round(1, 9, 30)
    sent = send(attack, updates, [0, 5])
    assert torch.equal(sent[0], sent[5])
    updates[5] *= -3
    assert torch.equal(send(attack, updates, [0, 5])[0], sent[0])


@pytest.mark.parametrize("attack", EVERY, ids=str)
def test_one_benign_client_is_enough_to_imitate(attack: MinMax) -> None:
    updates = random_round(2, 4, 30)
    sent = send(attack, updates, [0, 1, 3])[0]
    expected = -0.5 * updates[2] if isinstance(attack, InnerProduct) else updates[2]
    torch.testing.assert_close(sent, expected)


class TestLittleIsEnough:
    def test_z_is_that_of_the_paper(self) -> None:
        """Of 50 with 24 malicious, a majority needs 2 of 26 benign ones: the quantile of 24 / 26."""
        assert alie_z(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
        assert alie_z(51, 20) == pytest.approx(NormalDist().inv_cdf(25 / 31))

    def test_z_is_never_negative_nor_infinite(self) -> None:
        for m in range(1, 30):
            for f in range(m + 1):
                assert 0 <= alie_z(m, f) < 5
        assert alie_z(10, 1) == 0
        assert alie_z(20, 16) > 0

    def test_the_default_uses_the_clients_of_the_round(self) -> None:
        updates = random_round(3, 50, 30)
        attackers = list(range(24))
        assert torch.equal(
            send(LittleIsEnough(), updates, attackers), send(LittleIsEnough(alie_z(50, 24)), updates, attackers)
        )


class TestMinMax:
    @pytest.mark.parametrize("direction", ["unit", "sign", "std"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_closed_form_is_where_the_published_search_ends(self, direction: str, dtype: torch.dtype) -> None:
        for seed in range(4):
            updates = random_round(seed, 10, 40, dtype)
            sent = send(MinMax(direction), updates, [0, 1])[0].double()
            benign = updates[2:].double()
            centre = benign.mean(0)
            away = {"unit": -centre / centre.norm(), "sign": -centre.sign(), "std": -benign.std(0)}[direction]
            limit = float(torch.cdist(benign, benign).max())
            low, high = 0.0, 1e3
            for _ in range(100):
                middle = (low + high) / 2
                inside = float((centre + middle * away - benign).norm(dim=1).max()) <= limit
                low, high = (middle, high) if inside else (low, middle)
            torch.testing.assert_close(sent, centre + low * away, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-9)
            assert low > 0
