import pytest
import torch
from torch import nn

from holdfast.federated.engine.stacked_layers import stacked_weights, weight_places

CLIENTS, BATCH, STEPS = 3, 4, 6


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("make", [nn.GRU, nn.LSTM, nn.RNN, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)])
@pytest.mark.parametrize("given", [False, True], ids=["from zero", "from a given state"])
def test_stacked_recurrent_layers_are_torchs_for_each_client_with_their_gradients(make, batch_first, options, given):
    torch.manual_seed(0)
    layers = [make(5, 7, batch_first=batch_first, **options).double() for _ in range(CLIENTS)]
    inputs = torch.randn(CLIENTS, BATCH, STEPS, 5, dtype=torch.float64, requires_grad=True)
    depth = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    first = torch.randn(2, depth, CLIENTS, BATCH, 7, dtype=torch.float64, requires_grad=True)

    def start(chosen: torch.Tensor) -> object:
        if not given:
            return None
        return (chosen[0], chosen[1]) if isinstance(layers[0], nn.LSTM) else chosen[0]

    theirs = []
    for client, layer in enumerate(layers):
        own = inputs[client] if batch_first else inputs[client].transpose(0, 1)
        outputs, last = layer(own, start(first[:, :, client].contiguous()))
        states = torch.stack(last) if isinstance(layer, nn.LSTM) else last[None]
        theirs.append((outputs if batch_first else outputs.transpose(0, 1), states))
    weights = [
        torch.stack([list(layer.parameters())[place].detach() for layer in layers]).requires_grad_()
        for place in range(len(list(layers[0].parameters())))
    ]
    model = layers[0]
    joined = inputs.flatten(0, 1)
    with stacked_weights(weight_places(model, list(model.parameters())), weights):
        outputs, last = model(joined if batch_first else joined.transpose(0, 1), start(first.flatten(2, 3)))
    outputs = (outputs if batch_first else outputs.transpose(0, 1)).view(CLIENTS, BATCH, STEPS, -1)
    states = (torch.stack(last) if isinstance(model, nn.LSTM) else last[None]).unflatten(2, (CLIENTS, BATCH))
    for client in range(CLIENTS):
        torch.testing.assert_close(outputs[client], theirs[client][0], rtol=0, atol=1e-12)
        torch.testing.assert_close(states[:, :, client], theirs[client][1], rtol=0, atol=1e-12)
    of = [inputs, first] if given else [inputs]
    ours = torch.autograd.grad(
        (outputs * outputs.detach().cos()).sum() + (states * 0.3).sum(), [*of, *weights], allow_unused=True
    )
    total = sum((one * one.detach().cos()).sum() + (state * 0.3).sum() for one, state in theirs)
    wanted = torch.autograd.grad(total, of, retain_graph=True, allow_unused=True)
    for one, other in zip(ours, wanted, strict=False):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    parameters = [list(layer.parameters()) for layer in layers]
    for place, gradient in enumerate(ours[len(of) :]):
        expected = torch.autograd.grad(total, [own[place] for own in parameters], retain_graph=True)
        torch.testing.assert_close(gradient, torch.stack(expected), rtol=0, atol=1e-11)
