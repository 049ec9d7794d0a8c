import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.federated.engine.network import Network
from tests.federated.engine.kinds import KeepsNormOff, Tied, Unused
from tests.federated.engine.test_network import batch, models


def test_slices_name_every_number_of_a_row_once():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    network = Network(model)
    state = model.state_dict()
    assert list(network.slices) == [*dict(model.named_parameters()), "1.running_mean", "1.running_var"]
    for name, where in network.slices.items():
        assert torch.equal(network.initial[where], state[name].flatten())
    ends = [(where.start, where.stop) for where in network.slices.values()]
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == network.size
    moved = network.initial.clone()
    moved[network.slices["2.bias"]] += 1
    assert torch.equal(network.load(moved).get_submodule("2").bias, model[2].bias + 1)


def test_frozen_parameters_and_tied_ones_are_in_a_row_never_and_once():
    model = nn.Sequential(nn.Linear(6, 4).requires_grad_(False), nn.Linear(4, 3))
    network = Network(model)
    assert list(network.slices) == ["1.weight", "1.bias"]
    loaded = network.load(2 * network.initial)
    assert torch.equal(loaded[0].weight, model[0].weight) and not loaded[0].weight.requires_grad
    tied = Network(Tied())
    assert "out.weight" not in tied.slices and "words.weight" in tied.slices
    loaded = tied.load(tied.initial + 1)
    assert loaded.out.weight is loaded.words.weight


def test_a_norm_that_the_module_keeps_out_of_training_has_no_statistics_in_a_row():
    assert not Network(KeepsNormOff()).tracks_statistics


def test_parameters_that_are_not_used_have_no_gradient_and_stay():
    network = Network(Unused().double())
    data = batch(2, 4, (6, 4))
    at = models(network, 2)
    for gradient in (network.gradient(at, data), network.gradient(at[:1].clone(), data.one(0))):
        for name, where in network.slices.items():
            assert bool(gradient[:, where].any()) == name.startswith("head")


def test_what_cannot_be_laid_out_is_refused_with_a_sentence():
    with pytest.raises(ConfigError, match="all of them are frozen"):
        Network(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(ConfigError, match="run one batch through it first"):
        Network(nn.LazyLinear(3))
    with pytest.raises(ConfigError, match=r"torch\.float32 and torch\.float64"):
        Network(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    bent = nn.Linear(2, 2)
    bent.extra = bent.weight * 2
    with pytest.raises(ConfigError, match="can't be copied"):
        Network(bent)
