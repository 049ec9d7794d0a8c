import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.errors import DataError
from holdfast.multimodal.backends.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing


def picture(height, width, seed=0):
    """Smooth colours with some noise, as uint8 of shape (height, width, 3)."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = np.stack([np.sin(9 * x + 4 * y), np.cos(12 * y), np.sin(20 * x * y)], -1)
    noise = np.random.default_rng(seed).normal(0, 0.1, waves.shape)
    return ((np.clip(waves + noise, -1, 1) + 1) * 127.5).astype(np.uint8)


@pytest.mark.parametrize("shape", [(60, 90), (91, 60), (47, 47), (33, 200), (20, 24)])
@pytest.mark.parametrize("size", [32, 35])
def test_it_equals_the_processor_of_transformers(shape, size):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size})
    pixels = picture(*shape)
    expected = theirs(Image.fromarray(pixels), return_tensors="pt")["pixel_values"][0]
    preprocessing = Preprocessing(size)
    assert torch.allclose(preprocessing(Image.fromarray(pixels)), expected, atol=1e-5)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    assert torch.allclose(preprocessing(tensor), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(60, 90), (91, 60), (20, 24)])
def test_floats_differ_from_bytes_by_rounding_where_nothing_is_cut_off(shape):
    """Pillow rounds once per direction: half a level, times the sum of the absolute weights, and half a level."""
    pixels = torch.from_numpy(picture(*shape) // 2 + 64).permute(2, 0, 1)
    preprocessing = Preprocessing(32)
    worst = (preprocessing(pixels / 255) - preprocessing(pixels)).abs().max()
    assert float(worst) < 1.2 / 255 / min(CLIP_STD)


def test_floats_of_the_right_size_are_only_normalised():
    image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))
    mean, std = torch.tensor(CLIP_MEAN).view(3, 1, 1), torch.tensor(CLIP_STD).view(3, 1, 1)
    assert torch.allclose(Preprocessing(16)(image), (image - mean) / std, atol=1e-6)


def test_grey_images_and_transparent_ones_become_rgb():
    for mode in ("L", "RGBA", "P"):
        assert Preprocessing(8)(Image.new(mode, (10, 12))).shape == (3, 8, 8)


def test_files_are_read_when_gathered(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        Image.fromarray(picture(20, 30, seed=i)).save(path)
    preprocessing = Preprocessing(16)
    gathered = preprocessing.inputs(paths).gather(torch.tensor([2, 0]))
    assert torch.equal(gathered, preprocessing.batch([Image.open(paths[2]), Image.open(paths[0])]))
    paths[0].write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png can't be decoded"):
        preprocessing.inputs(paths).gather(torch.tensor([0]))


def test_other_shapes_are_refused():
    with pytest.raises(DataError, match=r"shape \(1, 4, 4\); give \(3, height, width\)"):
        Preprocessing(4)(torch.zeros(1, 4, 4))


def test_wide_images_keep_their_greys_and_needles_are_refused():
    ramp = np.linspace(0, 65_535, 64).astype(np.uint16).reshape(8, 8)
    assert torch.equal(Preprocessing(8).square(Image.fromarray(ramp))[0], torch.from_numpy(np.rint(ramp / 257)).byte())
    with pytest.raises(DataError, match="1 x 60000 pixels is too narrow to resize to 224"):
        Preprocessing(224)(Image.new("L", (1, 60_000)))
