"""Models put together at random: whatever they are made of, stacked clients get what each gets alone."""

import copy

import hypothesis.strategies as st
import torch
from hypothesis import given
from torch import Tensor, nn

from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.draws import Draws
from holdfast.federated.engine.network import Network

CLIENTS, LENGTH, WIDTH = 3, 4, 6


class First(nn.Module):
    """A layer's first result: recurrent layers and attention give several."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)[0]


class Turned(nn.Module):
    """A layer that takes features before the sequence."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


class Bends(nn.Module):
    """A layer beside the identity."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


class Ends(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(1))


LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "linear without bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "group norm": lambda: Turned(nn.GroupNorm(2, WIDTH)),
    "batch norm": lambda: Turned(nn.BatchNorm1d(WIDTH)),
    "instance norm": lambda: Turned(nn.InstanceNorm1d(WIDTH, affine=True)),
    "convolution": lambda: Turned(nn.Conv1d(WIDTH, WIDTH, 3, padding=1)),
    "gelu": nn.GELU,
    "prelu": nn.PReLU,
    "dropout": lambda: nn.Dropout(0.3),
    "channels": lambda: Turned(nn.Dropout1d(0.3)),
    "alpha dropout": lambda: nn.AlphaDropout(0.3),
    "gru": lambda: First(nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "both ways": lambda: First(nn.GRU(WIDTH, WIDTH // 2, bidirectional=True, batch_first=True)),
    "lstm": lambda: First(nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.2, batch_first=True)),
    "rnn": lambda: First(nn.RNN(WIDTH, WIDTH, batch_first=True)),
    "attention": lambda: First(nn.MultiheadAttention(WIDTH, 2, dropout=0.2, batch_first=True)),
    "transformer": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 8, 0.2, batch_first=True),
}


@given(
    layers=st.lists(st.tuples(st.sampled_from(sorted(LAYERS)), st.booleans(), st.booleans()), min_size=1, max_size=4),
    repeated=st.booleans(),
    padded=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_stacked_clients_get_what_each_gets_alone(layers, repeated, padded, seed):
    torch.manual_seed(seed)
    parts = []
    for name, frozen, beside in layers:
        layer = LAYERS[name]()
        layer.requires_grad_(not frozen)
        parts.append(Bends(layer) if beside else layer)
    body = nn.Sequential(*parts, *(parts if repeated else ()))
    network = Network(Ends(body).double())
    inputs = torch.randn(CLIENTS, 5, LENGTH, WIDTH, dtype=torch.float64)
    labels = torch.randint(0, 3, (CLIENTS, 5))
    network.study(inputs.flatten(0, 1))
    real = torch.full((CLIENTS,), 5)
    if not network.batch_dependent:
        real[1] -= padded
    weights = (torch.arange(5) < real[:, None]) / real[:, None].double()
    ids, rows = torch.arange(CLIENTS), torch.arange(CLIENTS * 5).view(CLIENTS, 5)
    batch = ClientBatch(inputs, labels, weights, ids, ids, rows, even=bool((real == 5).all()))
    draws = Draws(seed, "shared", (4, 0, 7), (0, 3, 1))
    at = network.initial + 0.05 * torch.randn(CLIENTS, network.size, dtype=torch.float64)
    at[:, network.trainable :].abs_()
    together, alone = at.clone(), at.clone()
    gradients = network.gradient(together, batch, draws)
    for client in range(CLIENTS):
        row = alone[client : client + 1]
        wanted = network.gradient(row, batch.one(client), draws.one(client))
        torch.testing.assert_close(gradients[client], wanted[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(together[client], row[0], rtol=0, atol=1e-9)
        plain = copy.deepcopy(network.load(at[client]))
        with torch.no_grad():
            expected = plain(inputs[client])
        torch.testing.assert_close(network.outputs(at, inputs)[client].detach(), expected, rtol=0, atol=1e-9)
