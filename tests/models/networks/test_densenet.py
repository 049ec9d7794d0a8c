import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.models import DenseNet121, build, find_head
from holdfast.models.networks.densenet import current_name


def by_hand(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Logits in evaluation mode, read off the paper's Table 1 and the state dict alone."""

    def normed(name: str, hidden: Tensor) -> Tensor:
        mean, var = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        return F.relu(F.batch_norm(hidden, mean, var, weights[f"{name}.weight"], weights[f"{name}.bias"]))

    hidden = normed("features.norm0", F.conv2d(inputs, weights["features.conv0.weight"], stride=2, padding=3))
    hidden = F.max_pool2d(hidden, 3, 2, 1)
    for block, depth in enumerate((6, 12, 24, 16), start=1):
        outputs = [hidden]
        for layer in range(1, depth + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            narrow = F.conv2d(normed(f"{name}.norm1", torch.cat(outputs, 1)), weights[f"{name}.conv1.weight"])
            outputs.append(F.conv2d(normed(f"{name}.norm2", narrow), weights[f"{name}.conv2.weight"], padding=1))
        hidden = torch.cat(outputs, 1)
        if block < 4:
            name = f"features.transition{block}"
            hidden = F.avg_pool2d(F.conv2d(normed(f"{name}.norm", hidden), weights[f"{name}.conv.weight"]), 2)
    pooled = normed("features.norm5", hidden).mean((2, 3))
    return pooled @ weights["classifier.weight"].T + weights["classifier.bias"]


def test_it_has_the_published_number_of_parameters_under_torchvisions_names():
    with torch.device("meta"):
        model = DenseNet121()
    assert sum(parameter.numel() for parameter in model.parameters()) == 7_978_856
    keys = model.state_dict()
    assert len(keys) == 727
    assert keys["features.conv0.weight"].shape == (64, 3, 7, 7)
    assert keys["features.denseblock1.denselayer1.conv1.weight"].shape == (128, 64, 1, 1)
    assert keys["features.denseblock4.denselayer16.conv2.weight"].shape == (32, 128, 3, 3)
    assert keys["features.transition3.conv.weight"].shape == (512, 1024, 1, 1)
    assert keys["features.norm5.running_var"].shape == (1024,)
    assert keys["classifier.weight"].shape == (1000, 1024)


def test_logits_are_those_computed_by_hand_and_the_head_on_the_features():
    model = build("densenet121", (3, 40, 33), 7).eval()
    generator = torch.Generator().manual_seed(0)
    state = {
        key: torch.rand(value.shape, generator=generator) + 0.5
        if key.endswith(("running_var", "running_mean"))
        else value
        for key, value in model.state_dict().items()
    }
    model.load_state_dict(state)
    inputs = torch.randn(2, 3, 40, 33, generator=generator)
    with torch.no_grad():
        features, logits = model.features(inputs), model(inputs)
    torch.testing.assert_close(logits, by_hand(state, inputs), rtol=1e-4, atol=1e-5)
    assert features.shape == (2, 1024)
    assert torch.equal(model.head(features), logits)
    assert find_head(model)[0] == "classifier"


def test_images_down_to_29_pixels_are_taken_and_smaller_ones_refused():
    with torch.no_grad():
        assert DenseNet121((1, 29, 29), 2).eval()(torch.zeros(1, 1, 29, 29)).shape == (1, 2)
    with pytest.raises(ConfigError, match=r"at least 29x29 pixels and was given 28x28; resize"):
        DenseNet121((1, 28, 28), 2)


@pytest.mark.parametrize(
    "key", ["layer1.0.conv1.weight", "features.denseblock1.denselayer1.norm1.weight", "norm.1.bias"]
)
def test_names_that_are_not_old_stay(key):
    assert current_name(key) == key
