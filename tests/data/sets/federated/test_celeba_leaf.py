from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data import load_federation
from holdfast.errors import DataError
from tests.data.leaf_files import write_leaf


def faces(root: Path, counts: dict[str, int]) -> Path:
    images = root / "celeba" / "img_align_celeba"
    images.mkdir(parents=True)
    users, number = {}, 0
    for celebrity, count in counts.items():
        names = [f"{number + i:06d}.jpg" for i in range(count)]
        users[celebrity] = (names, [float(i % 2) for i in range(count)])
        for i, name in enumerate(names):
            shade = 40 * (i % 6)
            Image.fromarray(np.full((218, 178, 3), (shade, 255 - shade, 7), np.uint8)).save(images / name, quality=95)
        number += count
    write_leaf(root / "celeba-leaf" / "all_data" / "all_data.json", users)
    return root


def test_a_client_is_a_celebrity_with_five_images_or_more_and_pixels_stay_bytes(tmp_path: Path) -> None:
    clients = load_federation("celeba-leaf", faces(tmp_path, {"12": 10, "7": 4, "31": 5}))
    assert clients.names == ("12", "31")
    assert clients.input_shape == (3, 84, 84)
    assert str(clients.train.inputs.dtype) == "torch.uint8" and clients.classes == 2
    assert (clients.train.counts + clients.validation.counts + clients.test.counts).tolist() == [10, 5]
    for part in (clients.train, clients.test):
        for image, label in zip(part.inputs.float(), part.labels.tolist(), strict=True):
            red, green, blue = image.mean((1, 2)).tolist()
            assert red + green == pytest.approx(255, abs=4) and blue == pytest.approx(7, abs=4)
            assert round(red / 40) % 2 == label


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    faces(tmp_path, {"12": 6})
    (tmp_path / "celeba" / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.raises(DataError, match=r"there is no image .*000003.jpg"):
        load_federation("celeba-leaf", tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["../a.jpg"] * 5, [0] * 5, "x must be names of image files, without folders"),
        ([1] * 5, [0] * 5, "x must be names of image files"),
        (["a.jpg"] * 5, [0, 1, 2, 0, 0], "y must be 0 or 1"),
    ],
)
def test_other_values_are_refused(tmp_path: Path, x, y, message) -> None:
    faces(tmp_path, {"12": 6})
    write_leaf(tmp_path / "celeba-leaf" / "all_data" / "all_data.json", {"9": (x, y)})
    with pytest.raises(DataError, match=message):
        load_federation("celeba-leaf", tmp_path)
