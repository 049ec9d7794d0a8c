import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError
from holdfast.models import MLP, MODELS, LeNet5, LinearClassifier, build
from holdfast.models.networks.resnet import (
    Bottleneck,
    PadShortcut,
    ResNet,
    WideBottleneck,
    resnet18,
    resnet20,
    resnet50,
    wide_resnet50,
)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: LeNet5((1, 28, 28), 10), 61_706),
        (lambda: LeNet5((3, 28, 28), 5), 61_581),
        (lambda: LeNet5((3, 32, 32), 10), 62_006 + 16 * (36 - 25) * 120),
        (lambda: MLP((3, 10, 10), 2), 55_298),
        (lambda: LinearClassifier((1, 8, 8), 10), 650),
        (lambda: resnet18(1000), 11_689_512),
        (lambda: resnet50(1000), 25_557_032),
        (lambda: MODELS["wide-resnet50"]((3, 64, 64), 1000), 68_883_240),
        (lambda: resnet18(10, stem="cifar"), 11_173_962),
        (lambda: resnet20(10), 269_722),
    ],
)
def test_parameter_counts_are_the_published_ones(make, expected):
    with torch.device("meta"):
        assert parameters(make()) == expected


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [
        ("lenet5", (3, 28, 28), 84),
        ("lenet5", (1, 13, 20), 84),
        ("mlp", (3, 10, 10), 128),
        ("mlp-batchnorm", (3, 10, 10), 32),
        ("cnn-half-batchnorm", (1, 28, 28), 32),
        ("linear", (1, 8, 8), 64),
        ("resnet18", (3, 64, 64), 512),
        ("resnet50", (3, 64, 64), 2048),
        ("resnet18-cifar", (1, 8, 8), 512),
        ("resnet20", (3, 32, 32), 64),
    ],
)
def test_every_network_is_its_head_on_its_features(name, shape, width):
    model = build(name, shape, 7).eval()
    inputs = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, logits = model.features(inputs), model(inputs)
    assert features.shape == (2, width)
    assert logits.shape == (2, 7)
    assert torch.equal(model.head(features), logits)


def test_lenet_is_the_textbook_stack_of_layers():
    model = LeNet5((1, 28, 28), 10)
    stack = nn.Sequential(
        model.conv1, nn.ReLU(), nn.MaxPool2d(2), model.conv2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        model.fc1, nn.ReLU(), model.fc2, nn.ReLU(), model.head,
    )  # fmt: skip
    inputs = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(model(inputs), stack(inputs))


def test_mlp_can_have_other_hidden_layers_or_none():
    assert [layer.out_features for layer in MLP((4,), 2, hidden=(5, 6, 7)).layers] == [5, 6, 7]
    assert parameters(MLP((4,), 2, hidden=())) == parameters(LinearClassifier((4,), 2))


def test_images_too_small_for_lenet_are_refused_before_a_layer_is_made():
    with pytest.raises(ConfigError, match=r"at least 12x12 pixels and was given 8x8"):
        LeNet5((1, 8, 8), 10)


def hugging_face_name(name: str) -> str:
    """The key in transformers' ResNet of one of torchvision's keys."""
    head, _, rest = name.partition(".")
    if head == "fc":
        return f"classifier.1.{rest}"
    kinds = {"conv": "convolution", "bn": "normalization"}
    if head in ("conv1", "bn1"):
        return f"resnet.embedder.embedder.{kinds[head[:-1]]}.{rest}"
    block, layer, leaf = rest.split(".", 2)
    place = f"resnet.encoder.stages.{int(head.removeprefix('layer')) - 1}.layers.{block}"
    if layer == "downsample":
        index, leaf = leaf.split(".")
        return f"{place}.shortcut.{('convolution', 'normalization')[int(index)]}.{leaf}"
    return f"{place}.layer.{int(layer[-1]) - 1}.{kinds[layer[:-1]]}.{leaf}"


@pytest.mark.parametrize(
    ("make", "kind", "sizes", "depths"),
    [
        (resnet18, "basic", [64, 128, 256, 512], [2, 2, 2, 2]),
        (resnet50, "bottleneck", [256, 512, 1024, 2048], [3, 4, 6, 3]),
    ],
)
def test_resnets_agree_with_the_published_implementation_key_by_key(make, kind, sizes, depths):
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(layer_type=kind, hidden_sizes=sizes, depths=depths, num_labels=10)
    theirs = transformers.ResNetForImageClassification(config).eval()
    ours = make(10).eval()
    names = ours.state_dict().keys()
    weights = theirs.state_dict()
    assert {hugging_face_name(name) for name in names} == weights.keys()
    ours.load_state_dict({name: weights[hugging_face_name(name)] for name in names})
    inputs = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(inputs), theirs(inputs).logits, rtol=1e-4, atol=1e-4)


def test_resnet_keys_are_torchvisions():
    with torch.device("meta"):
        keys = resnet18().state_dict()
    assert keys["conv1.weight"].shape == (64, 3, 7, 7)
    assert keys["layer1.0.conv1.weight"].shape == (64, 64, 3, 3)
    assert keys["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert keys["layer2.0.downsample.1.running_var"].shape == (128,)
    assert keys["fc.weight"].shape == (1000, 512)
    assert "layer1.0.downsample.0.weight" not in keys


def test_the_wide_resnet_differs_from_resnet50_inside_its_blocks_only():
    with torch.device("meta"):
        wide, plain = wide_resnet50().state_dict(), resnet50().state_dict()
    assert wide.keys() == plain.keys()
    widened = {key for key in wide if wide[key].shape != plain[key].shape}
    inner = ("conv1", "bn1", "conv2", "bn2", "conv3")
    assert widened == {
        key
        for key in plain
        if key.startswith("layer") and key.split(".")[2] in inner and "num_batches_tracked" not in key
    }
    assert wide["layer1.0.conv2.weight"].shape == (128, 128, 3, 3)
    assert wide["layer4.2.conv3.weight"].shape == (2048, 1024, 1, 1)


def test_a_wide_block_with_half_of_its_channels_silent_is_the_plain_block():
    wide, plain = WideBottleneck(8, 2, 1, None).eval(), Bottleneck(8, 2, 1, None).eval()
    state = wide.state_dict()
    for key, value in plain.state_dict().items():
        state[key] = torch.zeros_like(state[key])
        state[key][tuple(slice(0, size) for size in value.shape)] = value
    wide.load_state_dict(state)
    inputs = torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(wide(inputs), plain(inputs))


def test_the_cifar_stem_keeps_the_resolution():
    sizes = []
    model = resnet18(10, stem="cifar")
    model.layer1.register_forward_pre_hook(lambda _, args: sizes.append(args[0].shape[-2:]))
    model.layer4.register_forward_hook(lambda _, args, out: sizes.append(out.shape[-2:]))
    model(torch.zeros(2, 3, 32, 32))
    assert sizes == [(32, 32), (4, 4)]


def test_an_unknown_stem_is_named():
    with pytest.raises(ConfigError, match="did you mean 'cifar'"):
        resnet18(10, stem="cifar10")


def test_option_a_shortcut_drops_pixels_and_adds_zero_channels():
    inputs = torch.randn(1, 3, 4, 4)
    out = PadShortcut(3, 2)(inputs)
    assert out.shape == (1, 6, 2, 2)
    assert torch.equal(out[:, 1:4], inputs[:, :, ::2, ::2])
    assert out[:, :1].abs().sum() + out[:, 4:].abs().sum() == 0


def test_resnet20_has_he_initial_variance_and_no_parameters_in_shortcuts():
    model = build("resnet20", (3, 32, 32), 10)
    assert isinstance(model, ResNet)
    weight = model.layer3[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert not any("downsample" in name for name, _ in model.named_parameters())
