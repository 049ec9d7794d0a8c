import builtins

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.errors import ConfigError, DataError, MissingDependencyError
from holdfast.models import build
from holdfast.models.saliency import heat_maps, last_feature_maps


class Tiny(nn.Module):
    """A strided convolution, ReLU, the mean over pixels, a linear head: its GradCAM has a closed form."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.conv = nn.Conv2d(2, 4, 3, stride, padding=1)

    def forward(self, x):
        return self.head(F.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture
def images():
    return torch.randn(40, 2, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def the_same_start_for_every_test():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def scaled(maps):
    return maps / maps.amax((1, 2), keepdim=True).clamp_min(1e-30)


def test_maps_are_the_rectified_sum_of_channels_weighed_by_their_mean_gradient(images):
    """d logit_c / d A_k = W_ck 1[A_k > 0] / pixels, so the weight is W_ck times the share of positive pixels."""
    model, targets = Tiny(), torch.arange(40) % 3
    with torch.no_grad():
        activations = model.conv(images)
        weights = model.head.weight[targets] * (activations > 0).float().mean((2, 3))
        expected = F.relu((weights[:, :, None, None] * activations).sum(1))
    maps = heat_maps(model, images, targets)
    assert maps.shape == (40, 8, 6)
    assert torch.allclose(maps, scaled(expected), atol=1e-5)


def test_maps_of_a_coarser_layer_are_interpolated_to_the_size_of_the_input(images):
    model, targets = Tiny(stride=2), torch.zeros(40, dtype=torch.int64)
    with torch.no_grad():
        activations = model.conv(images)
        weights = model.head.weight[targets] * (activations > 0).float().mean((2, 3))
        coarse = F.relu((weights[:, :, None, None] * activations).sum(1, keepdim=True))
    expected = F.interpolate(coarse, (8, 6), mode="bilinear", align_corners=False)[:, 0]
    assert torch.allclose(heat_maps(model, images, targets), scaled(expected), atol=1e-5)


def test_maps_are_from_0_to_1_and_empty_where_nothing_speaks_for_the_class(images):
    model = Tiny()
    nn.init.constant_(model.head.weight, -1.0)
    nn.init.constant_(model.conv.bias, 50.0)
    assert heat_maps(model, images, torch.zeros(40, dtype=torch.int64)).eq(0).all()
    nn.init.constant_(model.head.weight, 1.0)
    maps = heat_maps(model, images, torch.zeros(40, dtype=torch.int64))
    assert maps.amax((1, 2)).eq(1).all()
    assert maps.min() >= 0


def test_a_bright_patch_that_the_class_depends_on_is_where_the_map_is_hot():
    model = Tiny()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.conv.weight[0, 0, 1, 1] = 1.0
        model.head.weight[2, 0] = 1.0
    image = torch.zeros(1, 2, 8, 6)
    image[0, 0, 1:3, 4] = 1.0
    image[0, 1, 6, 0] = 9.0
    assert torch.equal(heat_maps(model, image, torch.tensor([2]))[0], image[0, 0])


def test_the_model_is_left_as_it_was(images):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(3))
    model(images)
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    heat_maps(model, images, torch.zeros(40, dtype=torch.int64))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (model.training, model[0].training, model[1].training) == (True, True, False)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_frozen_weights_and_an_outer_no_grad_do_not_matter(images):
    model, targets = Tiny(), torch.zeros(40, dtype=torch.int64)
    expected = heat_maps(model, images, targets)
    with torch.no_grad():
        assert torch.equal(heat_maps(model.requires_grad_(False), images, targets), expected)


def test_another_layer_can_be_named(images):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 2, 3))
    targets = torch.zeros(40, dtype=torch.int64)
    assert not torch.equal(heat_maps(model, images, targets), heat_maps(model, images, targets, "0"))
    with pytest.raises(ConfigError, match="no part named 'nine'"):
        heat_maps(model, images, targets, "nine")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("lenet5", (3, 28, 28), "conv2"),
        ("resnet18", (3, 64, 64), "layer4"),
        ("resnet20", (3, 16, 16), "layer3"),
    ],
)
def test_the_last_feature_maps_of_known_networks_are_found(name, shape, expected):
    assert last_feature_maps(build(name, shape, 2), torch.zeros(1, *shape)) == expected


def test_the_order_is_that_of_running_and_not_of_registration():
    model = nn.Module()
    model.second, model.first = nn.Conv2d(3, 3, 1), nn.Conv2d(2, 3, 1)
    model.forward = lambda x: model.second(model.first(x)).mean((2, 3))
    assert last_feature_maps(model, torch.zeros(1, 2, 4, 4)) == "second"


def test_a_part_that_ends_in_one_pixel_is_not_taken_for_maps():
    body = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(body, nn.Flatten(), nn.Linear(3, 2))
    assert last_feature_maps(model, torch.zeros(1, 2, 4, 4)) == "0.0"
    assert last_feature_maps(nn.Sequential(body[:2], *body[2:], *model[1:]), torch.zeros(1, 2, 4, 4)) == "0"


def test_a_model_without_convolutions_is_named():
    with pytest.raises(ConfigError, match="MLP has no 2-d convolution"):
        heat_maps(build("mlp", (3, 4, 4), 2), torch.zeros(1, 3, 4, 4), torch.tensor([0]))


def test_shapes_that_do_not_fit_are_named(images):
    with pytest.raises(DataError, match=r"targets \(2,\)"):
        heat_maps(Tiny(), images, torch.tensor([0, 1]))


def test_without_captum_the_error_names_the_extra(images, monkeypatch):
    found = builtins.__import__

    def without_captum(name, *args, **more):
        if name.startswith("captum"):
            raise ImportError(name)
        return found(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without_captum)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[gradcam\]"):
        heat_maps(Tiny(), images, torch.zeros(40, dtype=torch.int64))
