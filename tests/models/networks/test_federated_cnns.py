import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from holdfast.errors import ConfigError
from holdfast.models import MODELS, CelebACNN, FederatedCNN, build

SMALL = {
    "cnn-femnist": ((1, 12, 12), 3),
    "cnn-fashion": ((1, 8, 8), 3),
    "cnn-celeba": ((3, 20, 20), 2),
    "cnn-small": ((1, 16, 16), 3),
    "cnn-half": ((1, 16, 16), 3),
    "cnn-pfl": ((3, 8, 8), 3),
    "svm": ((5,), 2),
    "softmax": ((5,), 3),
}


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [
        ("cnn-femnist", (1, 28, 28), 62, 222_078),
        ("cnn-celeba", (3, 84, 84), 2, 31_202),
        ("cnn-fashion", (1, 28, 28), 10, 3_274_634),
        ("cnn-small", (1, 28, 28), 10, 20_522),
        ("cnn-half", (1, 28, 28), 10, 6_218),
        ("cnn-pfl", (3, 32, 32), 10, 1_626_442),
        ("svm", (100,), 2, 101),
        ("softmax", (20,), 10, 210),
        ("bag-of-words", (40,), 500, 5_000_500),
    ],
)
def test_parameter_counts_are_the_published_ones(name, shape, classes, expected) -> None:
    with torch.device("meta"):
        model = MODELS[name](shape, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize("name", sorted(SMALL))
def test_gradients_of_stacked_clients_are_those_of_each_alone(name) -> None:
    """What `torch.func.vmap` needs: no change in place, no branch on data, no running statistics."""
    shape, classes = SMALL[name]
    models = [build(name, shape, classes, seed=seed).double().eval() for seed in range(3)]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 4, *shape, generator=generator, dtype=torch.float64)
    parameters, _ = stack_module_state(models)

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(models[0], values, (x,)).square().sum()

    stacked = vmap(grad(loss))({key: value.detach() for key, value in parameters.items()}, inputs)
    for client, model in enumerate(models):
        model(inputs[client]).square().sum().backward()
        for key, parameter in model.named_parameters():
            torch.testing.assert_close(stacked[key][client], parameter.grad, rtol=1e-9, atol=1e-12)


def test_femnist_drops_a_quarter_of_the_maps_and_half_of_the_hidden_layer_in_training_only() -> None:
    model = build("cnn-femnist", (1, 28, 28), 62)
    assert [module.p for module in model.modules() if isinstance(module, nn.Dropout)] == [0.25, 0.5]
    inputs = torch.rand(2, 1, 28, 28)
    model.eval()
    assert torch.equal(model(inputs), model(inputs))
    assert not [module for module in build("cnn-fashion", (1, 8, 8), 2).modules() if isinstance(module, nn.Dropout)]


def test_celeba_takes_bytes_and_uses_the_statistics_of_the_batch_at_evaluation_too() -> None:
    model = CelebACNN((3, 84, 84), 2)
    pixels = torch.randint(0, 256, (4, 3, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert model.features(pixels).shape == (4, 1152)
    assert torch.equal(model(pixels), model(pixels.float()))
    trained, evaluated = model.train()(pixels), model.eval()(pixels)
    assert torch.equal(trained, evaluated)
    assert not torch.allclose(evaluated[:2], model(pixels[:2]))
    assert not list(model.buffers())


def test_images_too_small_for_the_filters_are_refused() -> None:
    with pytest.raises(ConfigError, match="images of 8x8 pixels are too small"):
        build("cnn-small", (1, 8, 8), 10)
    assert FederatedCNN((1, 16, 16), 2, (1, 1), 1, padded=False).dense.in_features == 1
