import pytest

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import AGGREGATORS, Clipping, KLoss, Krum, MultiKrum, WithPreStep, build_aggregator


def test_every_rule_is_made_by_its_name_and_knows_it() -> None:
    assert {name: build_aggregator(name).label for name in AGGREGATORS} == {name: name for name in AGGREGATORS}


def test_joined_names_are_a_chain_with_options_of_its_own() -> None:
    chain = build_aggregator("clipping + multi-krum", {"multi-krum": {"keep": 3}})
    assert chain == WithPreStep(Clipping(), MultiKrum(keep=3))
    assert chain.label == "clipping+multi-krum"
    assert build_aggregator("clipping+clipping+krum") == Clipping() >> (Clipping() >> Krum())


def test_a_chain_speaks_for_its_members() -> None:
    assert (Clipping() >> KLoss()).needs_losses
    assert not (Clipping() >> Krum()).needs_losses
    assert (Clipping() >> Clipping()).averages
    assert not (Clipping() >> Krum()).averages
    assert len((Clipping() >> Krum()).check(10, 8)) == 2


def test_unknown_names_and_impossible_chains_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'median'"):
        build_aggregator("clipping+medain")
    with pytest.raises(ConfigError, match="krum leaves one vector"):
        build_aggregator("krum+clipping")


def test_a_rule_says_what_its_bound_covers() -> None:
    covers = {
        "nothing": ["mean", "k-loss", "tilted-mean", "q-fair", "momentum", "nnm", "bucketing", "momentum+mean"],
        "length": [
            *("clipping", "arc", "k-norm", "fedmgda", "centred-clipping", "momentum+centred-clipping"),
            *("clipping+krum", "clipping+nnm+trimmed-mean", "nnm+clipping+median", "bucketing+clipping"),
        ],
        "alike": ["median", "geometric-median", "krum", "multi-krum", "bulyan", "arc+krum", "momentum+median"],
        "unlike": [
            *("trimmed-mean", "nnm+krum", "nnm+median", "bucketing+median", "momentum+nnm+bulyan"),
            *("arc+trimmed-mean", "arc+nnm+krum", "nnm+arc+krum"),
        ],
    }
    assert {name: build_aggregator(name).covers for names in covers.values() for name in names} == {
        name: word for word, names in covers.items() for name in names
    }
    single = {name for names in covers.values() for name in names if "+" not in name}
    assert single == set(AGGREGATORS)
