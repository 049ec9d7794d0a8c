import pytest
import torch
from torch import nn

from holdfast.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalise
from holdfast.errors import ConfigError
from holdfast.models import build


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cnn-28", (3, 28, 28), 10, 25_869_898),
        ("cnn-64", (3, 64, 64), 20, 67_263_892),
        ("cnn-64", (3, 64, 64), 2, 67_190_146),
    ],
)
def test_parameters_are_the_published_ones(name, shape, classes, parameters):
    model = build(name, shape, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_layers_are_those_of_the_table():
    model = build("cnn-28", (3, 28, 28), 10)
    assert [type(module).__name__ for module in model.children()] == [
        "Conv2d",
        "BatchNorm2d",
        "Conv2d",
        "BatchNorm2d",
        "Linear",
        "Linear",
    ]
    convolutions = [module for module in model.children() if isinstance(module, nn.Conv2d)]
    assert [(each.kernel_size, each.stride, each.out_channels) for each in convolutions] == [
        ((4, 4), (2, 2), 64),
        ((4, 4), (2, 2), 128),
    ]


def test_the_small_one_has_the_same_topology():
    model = build("cnn-28-small", (3, 28, 28), 10)
    assert model(torch.rand(2, 3, 28, 28)).shape == (2, 10)
    with pytest.raises(ConfigError, match="too small"):
        build("cnn-28-small", (3, 3, 3), 10)


def test_the_residual_network_for_pixels_normalises_them():
    plain, pixels = (build(name, (3, 64, 64), 6, seed=1).eval() for name in ("resnet18", "resnet18-pixels"))
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(pixels(images), plain(Normalise(IMAGENET_MEAN, IMAGENET_STD)(images)))
    assert pixels.state_dict().keys() == plain.state_dict().keys()
