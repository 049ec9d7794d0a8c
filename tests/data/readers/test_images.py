from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data.readers.images import ImageReader, centre_crop
from holdfast.errors import DataError
from tests.data.trees import write_image


def test_without_resizing_an_image_is_its_normalised_middle(tmp_path: Path) -> None:
    pixels = write_image(tmp_path / "a.png", width=12, height=10)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    read = ImageReader(resize=None, crop=6, mean=mean, std=std)(tmp_path / "a.png")
    expected = (pixels[2:8, 3:9].transpose(2, 0, 1) / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert read.dtype == torch.float32
    np.testing.assert_allclose(read, expected, atol=1e-5)


def test_resizing_is_antialiased_averaging(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    Image.fromarray(stripes).save(tmp_path / "a.png")
    read = ImageReader(resize=8, crop=None, mean=(0, 0, 0), std=(1, 1, 1))(tmp_path / "a.png")
    np.testing.assert_allclose(read[:, :, 1:-1], 100 / 255, atol=0.01)


def test_the_first_crop_comes_before_the_resizing(tmp_path: Path) -> None:
    framed = np.zeros((20, 16, 3), np.uint8)
    framed[4:16, 2:14] = 255
    Image.fromarray(framed).save(tmp_path / "a.png")
    read = ImageReader(crop_first=12, resize=5, crop=None, mean=(0, 0, 0), std=(1, 1, 1))(tmp_path / "a.png")
    assert read.shape == (3, 5, 5)
    assert (read == 1).all()


def test_grey_and_transparent_images_become_three_channels(tmp_path: Path) -> None:
    for mode in ("L", "RGBA", "P"):
        Image.new(mode, (8, 8)).save(tmp_path / f"{mode}.png")
        assert ImageReader(resize=4, crop=4)(tmp_path / f"{mode}.png").shape == (3, 4, 4)


def test_a_crop_larger_than_the_image_is_black_outside() -> None:
    cropped = np.asarray(centre_crop(Image.new("RGB", (2, 2), "white"), 4))
    assert cropped.shape == (4, 4, 3)
    assert cropped.sum() == 4 * 3 * 255 and cropped[1:3, 1:3].min() == 255


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_opened_only_when_gathered(tmp_path: Path, workers: int) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    inputs = ImageReader(resize=8, crop=None).inputs(paths, workers)
    for seed, path in enumerate(paths[:3]):
        write_image(path, seed=seed)
    batch = inputs.gather(torch.tensor([2, 0]))
    assert torch.equal(batch[0], ImageReader(resize=8, crop=None)(paths[2]))
    with pytest.raises(DataError, match=r"there is no image .*3\.png"):
        inputs.gather(torch.tensor([0, 3]))


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_a_truncated_image_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    write_image(path, 64, 64)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"a\.{kind} can't be decoded"):
        ImageReader()(path)
    path.write_text("no image at all")
    with pytest.raises(DataError, match=rf"a\.{kind} can't be decoded"):
        ImageReader()(path)
