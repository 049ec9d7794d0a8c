import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.federated.engine.stacked_layers import (
    CannotStackError,
    FastPooling,
    stacked_weights,
    weight_places,
)


def stacked_and_single(layer: nn.Module, images: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Outputs and gradients of three clients' layers: stacked, and one by one with torch's own functions."""
    start = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    weights = {name: torch.stack([w, 2 * w, w - 0.3]).requires_grad_() for name, w in start.items()}
    inputs = images.clone().requires_grad_()
    with stacked_weights(weight_places(layer, list(layer.parameters())), list(weights.values())), FastPooling():
        ours = layer(inputs.flatten(0, 1))
    ours = ours.view(*inputs.shape[:2], *ours.shape[1:])
    alone = [functional_call(layer, {name: w[k] for name, w in weights.items()}, (inputs[k],)) for k in range(3)]
    theirs = torch.stack(alone)
    towards = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1), dtype=theirs.dtype)
    of = [inputs, *weights.values()]
    gradients = zip(torch.autograd.grad(ours, of, towards), torch.autograd.grad(theirs, of, towards), strict=True)
    return [(ours, theirs), *gradients]


def images(channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, channels, height, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("padding", [0, 2, "same", "valid", (1, 0)])
@pytest.mark.parametrize(("kernel", "stride"), [(5, 1), ((3, 1), 1), (3, 2), (1, 1), ((3, 5), (2, 3))])
def test_a_stacked_convolution_is_that_of_torch_for_each_client(padding, kernel, stride):
    if padding == "same" and stride != 1:
        pytest.skip("torch refuses it")
    layer = nn.Conv2d(2, 3, kernel, stride=stride, padding=padding).double()
    for width in (8, 60):  # rows of the output that are short, and long, see `Convolution`
        for ours, theirs in stacked_and_single(layer, images(2, 9, width)):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_convolution_without_bias_and_a_linear_layer_are_those_of_torch():
    for layer, inputs in (
        (nn.Conv2d(2, 4, 3, bias=False), images(2, 9, 8)),
        (nn.Linear(8, 5), images(2, 9, 8)),
        (nn.Linear(8, 5, bias=False), images(2, 9, 8)[:, :, 0, 0]),
    ):
        for ours, theirs in stacked_and_single(layer.double(), inputs):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(2, 4, 3, dilation=2), nn.ConvTranspose2d(2, 4, 3)]
)
def test_what_has_no_stacked_version_says_so_and_leaves_the_module_as_it_was(layer):
    before = dict(layer._parameters)
    with pytest.raises(CannotStackError):
        stacked_and_single(layer.double(), images(2, 9, 8))
    assert dict(layer._parameters) == before


@pytest.mark.parametrize("size", [(8, 6), (9, 7)])
@pytest.mark.parametrize("layer", [nn.MaxPool2d(2), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 2, padding=1)])
def test_stacked_pooling_is_that_of_torch(layer, size):
    for ours, theirs in stacked_and_single(layer, images(2, *size)):
        assert torch.equal(ours, theirs)


def test_of_equal_entries_the_same_one_gets_the_gradient_as_in_torch():
    flat = torch.zeros(3, 1, 1, 4, 4, dtype=torch.float64)
    flat[:, :, :, 1, 1:] = 2.0
    for ours, theirs in stacked_and_single(nn.MaxPool2d(2), flat):
        assert torch.equal(ours, theirs)
