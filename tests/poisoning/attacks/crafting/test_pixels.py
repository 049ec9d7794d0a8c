import pytest
import torch
from torch import nn

from holdfast.data import Examples
from holdfast.data.transforms import Normalise
from holdfast.errors import DataError
from holdfast.models import find_head
from holdfast.poisoning.attacks import Normalised, in_pixels
from holdfast.poisoning.attacks.crafting.pixels import pixels_at

NORMALISE = Normalise((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))


def test_stored_bytes_become_pixels_through_subsets_too():
    stored = torch.randint(256, (6, 3, 4, 4), dtype=torch.uint8)
    examples = Examples.of(stored, torch.arange(6), transform=NORMALISE)
    whole, part = in_pixels(examples), in_pixels(examples.subset([4, 1]))
    assert torch.equal(pixels_at(whole, torch.arange(6)), stored / 255)
    assert torch.equal(pixels_at(part, torch.arange(2)), stored[[4, 1]] / 255)
    assert torch.equal(part.ids, torch.tensor([4, 1]))


def test_a_normalised_network_on_pixels_is_the_network_on_normalised_inputs():
    stored = torch.randint(256, (6, 3, 4, 4), dtype=torch.uint8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    whole = Normalised(model, NORMALISE)
    torch.testing.assert_close(whole(stored / 255), model(NORMALISE(stored)), atol=1e-5, rtol=1e-5)
    assert find_head(whole)[1] is model[1]


def test_what_is_no_picture_is_refused():
    with pytest.raises(DataError, match="so they aren't pixels; use in_pixels"):
        pixels_at(Examples.of(torch.randn(4, 3, 4, 4), [0, 1, 0, 1]), torch.arange(4))
    with pytest.raises(DataError, match="attacks perturb images"):
        pixels_at(Examples.of(torch.rand(4, 3), [0, 1, 0, 1]), torch.arange(4))
