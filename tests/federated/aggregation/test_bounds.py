"""Every rule keeps its published bound: for every dtype, every finite value of it, every place of the attackers.

Honest updates are anything, attackers anything finite. `BOUNDS` says per rule how many attackers it stands and how far
its result may be. Rules without a bound are listed, so that a new rule must be put on one side or the other.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from holdfast.federated.aggregation import AGGREGATORS, build_aggregator

#: Promise nothing against an attacker who may send anything: one of them can move them anywhere.
WITHOUT = {"mean", "k-loss", "tilted-mean", "q-fair", "nnm", "bucketing", "momentum"}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def in_range(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """Every coordinate is between those of honest updates (Yin et al., 2018)."""
    return bool(((result >= honest.amin(0) - slack) & (result <= honest.amax(0) + slack)).all())


def near_an_honest_one(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """Within sqrt(m - f - 2) + 1 diameters of every honest update.

    A kept update has no higher score than an honest one could have, (m - f - 2) D^2, and counts at least one honest
    neighbour (Blanchard et al., 2017, the proof of Proposition 4.2).
    """
    diameter = torch.cdist(honest, honest).max()
    return bool((result - honest).norm(dim=1).max() <= ((len(honest) - 2) ** 0.5 + 1) * diameter * 1.001 + slack)


def near_the_centre(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """Within 2 (m - f) / (m - 2f) radii of the honest mean (Minsker, 2015, Lemma 2.1; Lopuhaa and Rousseeuw, 1991)."""
    centre = honest.mean(0)
    radius = (honest - centre).norm(dim=1).max()
    return bool((result - centre).norm() <= 2 * len(honest) / (len(honest) - f) * radius * 1.001 + slack)


def no_longer(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """No longer than the longest honest update."""
    return bool(result.norm() <= honest.norm(dim=1).max() * 1.001 + slack)


def no_longer_anywhere(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """No coordinate is larger than the longest honest update."""
    return bool(result.abs().max() <= honest.norm(dim=1).max() * 1.001 + slack)


def of_length_one(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """No longer than the server's rate: checked before scaling, see `test_fedmgda_is_at_most_of_length_one`."""
    return True


def in_wider_range(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
    """In every coordinate no farther beyond the honest values than these are apart.

    Of the selected values at most f are attackers', so the median is among honest values; enough honest ones are
    selected to bound how far the values nearest to it may be (El Mhamdi et al., 2018).
    """
    low, high = honest.amin(0), honest.amax(0)
    width = (high - low) * 1.001 + slack
    return bool(((result >= low - width) & (result <= high + width)).all())


Kappa = Callable[[int, int], float]
Bound = Callable[[Tensor, Tensor, int, float], bool]


def variance_bound(kappa: Kappa) -> Bound:
    """|result - mean|^2 is at most kappa times the honest variance: (f, kappa)-robustness (Allouah et al., 2023)."""

    def holds(result: Tensor, honest: Tensor, f: int, slack: float) -> bool:
        m, centre = len(honest) + f, honest.mean(0)
        variance = (honest - centre).square().sum(1).mean()
        return bool((result - centre).norm() <= (kappa(m, f) * variance).sqrt() * 1.001 + slack)

    return holds


def mixed(kappa: Kappa) -> Kappa:
    """Behind nearest-neighbour mixing (Allouah et al., 2023, Section 3)."""
    return lambda m, f: 8 * f / (m - f) * (kappa(m, f) + 1)


def clipped(kappa: Kappa) -> Kappa:
    """Behind adaptive clipping (Allouah et al., 2025)."""
    return lambda m, f: kappa(m, f) + 2 * f / (m - 2 * f)


def both(*bounds: Bound) -> Bound:
    return lambda result, honest, f, slack: all(bound(result, honest, f, slack) for bound in bounds)


def krum_kappa(m: int, f: int) -> float:
    """That of the page on robust aggregation, where it is proved for as many neighbours as we count."""
    return 6 * (m - f) / (m - 2 * f - 1)


def trimmed_kappa(m: int, f: int) -> float:
    return 6 * f / (m - 2 * f) * (1 + f / (m - 2 * f))


def median_kappa(m: int, f: int) -> float:
    return 4 * (1 + f / (m - 2 * f)) ** 2


def minority(m: int) -> int:
    return (m - 1) // 2


def krum_stands(m: int) -> int:
    return max((m - 3) // 2, 0)


def bulyan_stands(m: int) -> int:
    return max((m - 3) // 4, 0)


def of_pairs(m: int) -> int:
    """A minority of the buckets of two."""
    return minority(-(-m // 2))


#: Attackers that a rule stands among m, and its bound: of result, honest updates, f and room for rounding.
BOUNDS: dict[str, tuple[Callable[[int], int], Bound]] = {
    "median": (minority, in_range),
    "trimmed-mean": (minority, in_range),
    "krum": (krum_stands, both(near_an_honest_one, variance_bound(krum_kappa))),
    "multi-krum": (krum_stands, both(near_an_honest_one, variance_bound(krum_kappa))),
    "geometric-median": (minority, near_the_centre),
    "clipping": (minority, no_longer),
    "k-norm": (minority, no_longer),
    "fedmgda": (minority, of_length_one),
    "centred-clipping": (minority, no_longer),
    "bulyan": (bulyan_stands, in_wider_range),
    "arc": (minority, no_longer),
    "arc+krum": (krum_stands, variance_bound(clipped(krum_kappa))),
    "arc+median": (minority, variance_bound(clipped(median_kappa))),
    "arc+nnm+trimmed-mean": (minority, variance_bound(clipped(mixed(trimmed_kappa)))),
    "nnm+trimmed-mean": (minority, variance_bound(mixed(trimmed_kappa))),
    "nnm+median": (minority, variance_bound(mixed(median_kappa))),
    "nnm+geometric-median": (minority, variance_bound(mixed(median_kappa))),
    "nnm+krum": (krum_stands, variance_bound(mixed(krum_kappa))),
    "nnm+multi-krum": (krum_stands, variance_bound(mixed(krum_kappa))),
    "bucketing+median": (of_pairs, in_range),
    "bucketing+trimmed-mean": (of_pairs, in_range),
    "clipping+median": (minority, no_longer_anywhere),
    "clipping+krum": (krum_stands, no_longer),
    "momentum+centred-clipping": (minority, no_longer),
}


def test_every_rule_has_a_bound_or_is_listed_as_having_none():
    missing = set(AGGREGATORS) - set(BOUNDS) - WITHOUT
    assert not missing, f"{sorted(missing)}: give a bound in BOUNDS, or list the name in WITHOUT"
    assert {name for joined in BOUNDS for name in joined.split("+")} | WITHOUT <= set(AGGREGATORS)
    assert not set(BOUNDS) & WITHOUT


@pytest.mark.parametrize("name", sorted({*BOUNDS, *WITHOUT}))
def test_a_rule_says_as_many_attackers_as_its_bound_stands(name):
    says = [build_aggregator(name).stands(m) for m in range(3, 60)]
    if name in WITHOUT:
        assert set(says) == {None}
    elif name != "fedmgda":  # whose length is bounded whoever sends what
        assert says == [BOUNDS[name][0](m) for m in range(3, 60)]


@st.composite
def rounds(draw, stands):
    """Updates of a round, which of them are honest, and how many are not."""
    dtype = draw(st.sampled_from(DTYPES))
    m = draw(st.integers(3, 13))
    f = draw(st.integers(0, stands(m)))
    parameters = draw(st.sampled_from([1, 2, 5, 40]))
    numbers = torch.finfo(dtype)
    seed = draw(st.integers(0, 2**31))
    stream = torch.Generator().manual_seed(seed)
    low, high = (
        round(torch.tensor(number, dtype=torch.float64).log2().item()) for number in (numbers.tiny, numbers.max)
    )
    scale, offset = draw(st.integers(low, high - 3)), draw(st.sampled_from([0.0, 1.0, 30.0]))
    spread = draw(st.sampled_from([1.0, 1.0, 1e-9, 0.0]))  # honest updates that are alike, or the same
    honest = spread * torch.randn(m - f, parameters, generator=stream, dtype=torch.float64) + offset
    if draw(st.booleans()):
        honest[: draw(st.integers(0, m - f))] = honest[0].clone()
    honest = (honest * 2.0**scale).clamp(-numbers.max, numbers.max).to(dtype)
    kinds = st.sampled_from(["largest", "any", "together", "copies", "zero"])
    evil = torch.zeros(f, parameters, dtype=dtype)
    for row in range(f):
        kind = draw(kinds)
        signs = torch.randint(0, 2, (parameters,), generator=stream).double() * 2 - 1
        if kind == "largest":
            evil[row] = (signs * numbers.max).to(dtype)
        elif kind == "any":
            power = draw(st.integers(low, high - 1))
            evil[row] = (signs * 2.0**power).to(dtype)
        elif kind == "together" and row:
            evil[row] = evil[0]
        elif kind == "copies":
            evil[row] = honest[row % len(honest)] * draw(st.sampled_from([1.0, -1.0, 0.5]))
    order = torch.randperm(m, generator=stream)
    return torch.cat([honest, evil])[order], (order < m - f), f


@pytest.mark.parametrize("name", sorted(BOUNDS))
@given(data=st.data())
def test_whatever_attackers_send_the_result_is_within_the_rules_bound(name, data):
    stands, bound = BOUNDS[name]
    updates, honest, f = data.draw(rounds(stands))
    result = build_aggregator(name)(updates, f=f, losses=torch.zeros(len(updates), dtype=torch.float64))
    assert result.dtype == updates.dtype
    assert bool(result.isfinite().all())
    numbers = torch.finfo(updates.dtype)
    unit = updates[honest].double().abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    rounding = numbers.eps + float(numbers.smallest_normal * numbers.eps / unit)
    slack = 40 * rounding * updates.shape[1] ** 0.5
    assert bound(result.double() / unit, updates[honest].double() / unit, f, slack)


@given(rounds(minority))
def test_fedmgda_is_at_most_of_length_one(round_):
    updates, _, f = round_
    result = build_aggregator("fedmgda")(updates, f=f)
    assert result.double().norm() <= 1 + 8 * torch.finfo(updates.dtype).eps


@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e5, 1e15, 1e20, 1e37, 1e100, 1e300])
def test_one_huge_update_does_not_move_the_rule(name, dtype, size):
    if size > torch.finfo(dtype).max:
        pytest.skip("no number of this dtype")
    stream = torch.Generator().manual_seed(0)
    honest = torch.randn(10, 200, generator=stream, dtype=torch.float64).to(dtype)
    for place in (0, 5, 10):
        updates = torch.cat([honest[:place], torch.full((1, 200), size, dtype=dtype), honest[place:]])
        assert float(build_aggregator(name)(updates, f=1).double().norm()) < 20
