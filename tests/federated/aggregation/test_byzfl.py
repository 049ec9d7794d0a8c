"""Agreement with byzfl wherever both define the rule; in float64, which it keeps for NumPy arrays only."""

import pytest
import torch
from torch import Tensor

from holdfast.federated.aggregation import (
    Clipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    TrimmedMean,
    clip_longest,
)
from tests.federated.aggregation.rounds import random_round
from tests.federated.byzantine import published

ROUNDS = [(seed, m, f) for seed, (m, f) in enumerate([(5, 1), (10, 2), (11, 4), (20, 7), (20, 1)])]


def agree(ours: Tensor, theirs: object) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(theirs), rtol=0, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize(("seed", "m", "f"), ROUNDS)
def test_our_rules_are_theirs(seed: int, m: int, f: int) -> None:
    byzfl = published()
    updates = random_round(seed, m, 50)
    given = updates.numpy()
    agree(Mean()(updates), byzfl.Average()(given))
    agree(Median()(updates), byzfl.Median()(given))
    agree(TrimmedMean()(updates, f=f), byzfl.TrMean(f)(given))
    agree(GeometricMedian()(updates), byzfl.GeometricMedian(nu=1e-9, T=500)(given))


@pytest.mark.parametrize(("seed", "m", "f"), ROUNDS)
def test_our_krum_is_theirs_once_both_count_the_same_neighbours(seed: int, m: int, f: int) -> None:
    """They count n - f - 1 others, we m - f - 2: theirs with one attacker more is ours."""
    byzfl = published()
    updates = random_round(seed, m, 50)
    agree(Krum()(updates, f=f - 1), byzfl.Krum(f)(updates.numpy()))
    agree(MultiKrum(keep=m - f)(updates, f=f - 1), byzfl.MultiKrum(f)(updates.numpy()))


@pytest.mark.parametrize(("seed", "m", "f"), ROUNDS)
def test_our_clipping_is_theirs_at_the_median_norm(seed: int, m: int, f: int) -> None:
    byzfl = published()
    updates = random_round(seed, m, 50)
    limit = float(updates.norm(dim=1).quantile(0.5))
    agree(Clipping().prepare(updates), byzfl.Clipping(limit)(updates.numpy().copy()))
    chained = byzfl.Median()(byzfl.Clipping(limit)(updates.numpy().copy()))
    agree((Clipping() >> Median())(updates, f=f), chained)


@pytest.mark.parametrize(("seed", "m", "f"), [*ROUNDS, (7, 12, 0), (8, 9, 4)])
def test_our_adaptive_clipping_is_theirs(seed: int, m: int, f: int) -> None:
    updates = random_round(seed, m, 50) * torch.linspace(0.2, 3, m, dtype=torch.float64)[:, None]
    agree(clip_longest(updates, f), published().ARC(f)(updates.numpy().copy()))


def test_single_precision_agrees_as_well() -> None:
    byzfl = published()
    updates = random_round(0, 30, 2000, torch.float32)
    agree(Median()(updates), byzfl.Median()(updates))
    agree(TrimmedMean()(updates, f=9), byzfl.TrMean(9)(updates))
    agree(Krum()(updates, f=8), byzfl.Krum(9)(updates))
