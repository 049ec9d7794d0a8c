import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.federated.engine.selection import select
from holdfast.federated.settings import Rounds

SIZES = torch.tensor([10, 20, 30, 40, 100])
NOBODY = torch.zeros(5, dtype=torch.bool)


def test_clients_are_distinct_ascending_and_a_function_of_seed_and_round():
    settings = Rounds(cohort=3)
    first = select(settings, 4, SIZES, NOBODY)
    assert torch.equal(first, select(settings, 4, SIZES, NOBODY))
    assert len(set(first.tolist())) == 3
    assert first.tolist() == sorted(first.tolist())
    assert len({tuple(select(settings, number, SIZES, NOBODY).tolist()) for number in range(20)}) > 3


def test_one_draw_is_in_proportion_to_the_examples():
    settings = Rounds(cohort=1)
    drawn = torch.tensor([int(select(settings, number, SIZES, NOBODY)) for number in range(4000)])
    wanted = SIZES / SIZES.sum()
    spread = (wanted * (1 - wanted) / 4000).sqrt()
    assert ((torch.bincount(drawn, minlength=5) / 4000 - wanted).abs() < 4 * spread).all()


def test_uniform_draws_do_not_look_at_sizes():
    settings = Rounds(cohort=2, sampling="uniform")
    drawn = torch.cat([select(settings, number, SIZES, NOBODY) for number in range(3000)])
    share = torch.bincount(drawn, minlength=5) / 3000
    assert ((share - 0.4).abs() < 4 * (0.4 * 0.6 / 3000) ** 0.5).all()


def test_stratified_rounds_have_the_malicious_share_exactly():
    malicious = torch.arange(20) < 7
    settings = Rounds(cohort=10, sampling="stratified")
    for number in range(20):
        chosen = select(settings, number, torch.ones(20, dtype=torch.int64), malicious)
        assert int(malicious[chosen].sum()) == 3
        assert len(set(chosen.tolist())) == 10


def test_more_clients_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="lower the cohort"):
        select(Rounds(cohort=6), 0, SIZES, NOBODY)
