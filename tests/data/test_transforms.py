import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast.data.transforms import Compose, Normalise, RandomCrop, RandomFlip, ScalePixels
from holdfast.errors import ConfigError, DataError


def pixels(n: int = 7, side: int = 6) -> Tensor:
    return torch.randint(256, (n, 3, side, side + 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def stream(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_scale_maps_black_and_white_to_0_and_1() -> None:
    batch = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert ScalePixels()(batch).flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_scale_refuses_floats() -> None:
    with pytest.raises(DataError, match="float32"):
        ScalePixels()(torch.zeros(1, 1, 2, 2))


def test_normalise_is_the_slow_loop_over_pixels_and_over_floats() -> None:
    batch, mean, std = pixels(), (0.4, 0.5, 0.6), (0.1, 0.2, 0.3)
    slow = np.empty(batch.shape, np.float64)
    for index, value in np.ndenumerate(batch.numpy()):
        slow[index] = (value / 255 - mean[index[1]]) / std[index[1]]
    transform = Normalise(mean, std)
    np.testing.assert_allclose(transform(batch), slow, atol=1e-5)
    floats = ScalePixels()(batch)
    before = floats.clone()
    np.testing.assert_allclose(transform(floats), slow, atol=1e-5)
    assert torch.equal(floats, before)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_flip_is_the_slow_loop(probability: float) -> None:
    batch = pixels(40)
    chosen = torch.rand(40, generator=stream()) < probability
    slow = torch.stack([image.flip(-1) if flip else image for image, flip in zip(batch, chosen, strict=True)])
    assert torch.equal(RandomFlip(probability)(batch, stream()), slow)


@pytest.mark.parametrize("margin", ["reflect", "zero"])
@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("padding", [0, 2])
def test_crop_is_the_slow_loop_over_padded_images(margin: str, size: int | None, padding: int) -> None:
    batch = pixels(30)
    cropped = RandomCrop(size, padding, margin)(batch, stream())
    generator = stream()
    height, width = (size or 6), (size or 7)
    tops = torch.randint(6 + 2 * padding - height + 1, (30, 1), generator=generator)
    lefts = torch.randint(7 + 2 * padding - width + 1, (30, 1), generator=generator)
    for image, cut, top, left in zip(batch, cropped, tops, lefts, strict=True):
        edges = ((0, 0), (padding, padding), (padding, padding))
        padded = np.pad(image.numpy(), edges, mode="reflect" if margin == "reflect" else "constant")
        expected = padded[:, int(top) : int(top) + height, int(left) : int(left) + width]
        np.testing.assert_array_equal(cut.numpy(), expected)
    assert cropped.dtype == torch.uint8


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ConfigError, match="a window of 20"):
        RandomCrop(20, padding=4)(pixels(), stream())


def test_random_transforms_depend_on_the_generator_alone() -> None:
    batch = pixels(50)
    augment = Compose((RandomCrop(), RandomFlip(), ScalePixels()))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = augment(batch, stream(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, augment(batch, stream(1)))
    assert not torch.equal(first, augment(batch, stream(2)))
    assert first.dtype == torch.float32
