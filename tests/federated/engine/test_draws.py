import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from holdfast.federated.engine.draws import Draws, NamedDraws, seeded
from holdfast.federated.engine.stacked_layers import CannotStackError
from holdfast.streams import torch_stream

THREE = Draws(4, "shared", (7, 2, 9), (0, 5, 1))


def alone(function, inputs: Tensor) -> list[Tensor]:
    results = []
    for place, own in enumerate(inputs):
        with NamedDraws(THREE.one(place)):
            results.append(function(own))
    return results


FUNCTIONS = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "channels": lambda x: F.dropout1d(x, 0.4),
    "alpha": lambda x: F.alpha_dropout(x, 0.4, True),
    "alpha channels": lambda x: F.feature_alpha_dropout(x, 0.4, True),
    "in place": lambda x: F.dropout(x.clone(), 0.4, inplace=True),
    "all": lambda x: F.dropout(x, 1.0),
    "rand": lambda x: x * torch.rand(x.shape),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn": lambda x: x + torch.randn(x.shape, dtype=x.dtype),
    "randn_like": lambda x: x + torch.randn_like(x),
    "bernoulli": lambda x: torch.bernoulli(x.abs().clamp(max=1)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
    "several": lambda x: F.dropout(F.dropout(x, 0.3) + torch.rand_like(x), 0.2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_clients_draw_the_same_alone_joined_and_under_vmap(name):
    function, inputs = FUNCTIONS[name], torch.randn(3, 4, 5, 6, dtype=torch.float64)
    wanted = torch.stack(alone(function, inputs))
    with NamedDraws(THREE, "joined"):
        joined = function(inputs.flatten(0, 1)).view(inputs.shape)
    torch.testing.assert_close(joined, wanted, rtol=0, atol=1e-12)

    def call(own: Tensor, place: Tensor) -> Tensor:
        with NamedDraws(THREE, "vmap", place):
            return function(own)

    torch.testing.assert_close(vmap(call, randomness="same")(inputs, torch.arange(3)), wanted, rtol=0, atol=1e-12)
    if name != "all":
        assert not torch.allclose(wanted[0] / inputs[0], wanted[1] / inputs[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_drawn_leaves_numbers_of_the_kind_that_torch_leaves(name, dtype):
    inputs = torch.rand(4, 5, 6, dtype=dtype)
    with NamedDraws(THREE.one(0)):
        named = FUNCTIONS[name](inputs)
    assert named.dtype == FUNCTIONS[name](inputs).dtype


def test_a_padded_batch_drops_the_same_from_its_first_examples():
    x = torch.ones(6, 40)
    with NamedDraws(THREE.one(0)):
        six = F.dropout(x, 0.5)
    with NamedDraws(THREE.one(0)):
        assert torch.equal(F.dropout(x[:4], 0.5), six[:4])


def test_the_rule_of_masks_is_the_one_that_published_numbers_hang_on():
    """Uniform numbers from a stream of (seed, role, call, client, batch), kept where they are p or more."""
    x = torch.ones(2, 3)
    with NamedDraws(THREE.one(1)):
        found = [F.dropout(x, 0.25), nn.Dropout(0.5)(x)]
    for call, (p, dropped) in enumerate(zip((0.25, 0.5), found, strict=True)):
        uniform = torch.rand(2, 3, generator=torch_stream(4, "dropout", "shared", call, 2, 5))
        assert torch.equal(dropped, (uniform >= p) / (1 - p))


def test_whole_channels_are_dropped_and_one_in_so_many():
    x = torch.ones(50, 40, 3, 3)
    with NamedDraws(THREE.one(0)):
        dropped = nn.Dropout2d(0.3)(x)
    by_channel = dropped.flatten(2)
    assert torch.equal(by_channel.amin(2), by_channel.amax(2))
    assert float((by_channel[..., 0] == 0).double().mean()) == pytest.approx(0.3, abs=0.05)


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))[:, None]
    with NamedDraws(THREE.one(0)):
        dropped = F.alpha_dropout(x, 0.3, True)
    assert float(dropped.mean()) == pytest.approx(0, abs=0.02)
    assert float(dropped.var()) == pytest.approx(1, abs=0.03)
    with NamedDraws(THREE.one(0)):
        values = F.alpha_dropout(torch.zeros(1000, 1), 0.3, True).unique()
    state = torch.get_rng_state()
    theirs = F.alpha_dropout(torch.zeros(1000, 1), 0.3, True).unique()
    torch.set_rng_state(state)
    torch.testing.assert_close(values, theirs)


def test_evaluation_and_generators_of_the_users_own_are_left_alone():
    x = torch.randn(4, 5)
    with NamedDraws(THREE.one(0)) as mode:
        assert F.dropout(x, 0.5, False) is x
        mine = torch.rand(4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(mine, torch.rand(4, generator=torch.Generator().manual_seed(1)))
    assert mode.calls == 0


def test_attention_with_dropout_is_that_of_torch_where_nothing_is_dropped():
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, dropout=1e-12, batch_first=True).double(), torch.randn(3, 5, 8).double()
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    hidden[:, 4] = True
    causal = torch.full((5, 5), -torch.inf).triu(1).double()
    for options in (
        {},
        {"need_weights": False},
        {"key_padding_mask": hidden},
        {"attn_mask": causal},
        {"attn_mask": causal == -torch.inf, "key_padding_mask": hidden, "average_attn_weights": False},
        {"attn_mask": causal.expand(6, 5, 5)},
    ):
        for query in (x, x[:, :5] * 2):
            with NamedDraws(THREE.one(0)) as mode:
                ours, weights = layer(query, x, x, **options)
            assert mode.calls == 1
            theirs, wanted = layer.eval()(query, x, x, **options)
            layer.train()
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
            assert (weights is None) == (wanted is None)
            if weights is not None:
                torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_with_dropout_are_those_of_torch_where_nothing_is_dropped(make, batch_first):
    torch.manual_seed(0)
    layer = make(4, 5, num_layers=3, dropout=1e-12, bidirectional=True, batch_first=batch_first).double()
    x = torch.randn(6, 7, 4).double()
    with NamedDraws(THREE.one(0)) as mode:
        ours, last = layer(x)
    assert mode.calls == 2
    theirs, wanted = layer.eval()(x)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    for one, other in zip(last, wanted, strict=True) if make is nn.LSTM else [(last, wanted)]:
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_what_is_drawn_not_per_example_is_refused_where_batches_are_joined():
    with pytest.raises(CannotStackError), NamedDraws(THREE, "joined"):
        torch.rand(1)


def test_a_seeded_pass_draws_by_its_name_and_torchs_generator_goes_on():
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    with seeded(THREE.one(0)):
        first = torch.rand(4)
    with seeded(THREE.one(1)):
        other = torch.rand(4)
    with seeded(THREE.one(0)):
        assert torch.equal(torch.rand(4), first)
    assert not torch.equal(first, other)
    assert torch.equal(torch.rand(2), wanted)
