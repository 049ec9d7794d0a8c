import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.models import build


@pytest.mark.parametrize("name", ["pocket-cnn", "pocket-cnn-batchnorm"])
def test_it_has_the_number_of_parameters_of_the_protocol(name):
    model = build(name, (3, 16, 16), 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 24_346
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 10)


def test_one_normalises_by_image_and_the_other_by_batch():
    torch.manual_seed(0)
    x = torch.randn(6, 1, 28, 28)
    by_image, by_batch = (build(name, (1, 28, 28), 10) for name in ("pocket-cnn", "pocket-cnn-batchnorm"))
    assert torch.allclose(by_image(x)[:2], by_image(x[:2]), atol=1e-5)
    assert not torch.allclose(by_batch(x)[:2], by_batch(x[:2]), atol=1e-2)


def test_what_is_no_image_is_refused():
    with pytest.raises(ConfigError, match="pocket CNN takes"):
        build("pocket-cnn", (5,), 2)
