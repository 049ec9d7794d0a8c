import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data import load_federation
from holdfast.data.sets.federated.painted_clients import read_coil
from holdfast.errors import DataError
from tests.data.archive_files import zipped
from tests.data.readers.test_idx import write_mnist


def png(value: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((128, 128), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def write_coil(path: Path, poses: int = 72) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(1, 21):
            content = png(10 * number)
            for pose in range(poses):
                archive.writestr(f"coil-20-proc/obj{number}__{pose}.png", content)


def test_digits_are_painted_by_label_and_environment(tmp_path: Path) -> None:
    write_mnist(tmp_path, n_train=150, n_test=50)
    clients = load_federation("painted-mnist", tmp_path, clients=4)
    assert clients.input_shape == (3, 28, 28) and clients.classes == 10
    assert sum(int(part.counts.sum()) for part in (clients.train, clients.validation, clients.test)) == 200
    assert clients.train.inputs.min() >= 0 and clients.train.inputs.max() <= 1
    assert clients.elsewhere is not None
    assert torch.equal(clients.test.inputs.amax(1), clients.elsewhere.inputs.amax(1)), "the same digits"
    for client in range(4):
        environment = int(clients.names[client][-1])
        for part, flip in ((clients.train, 0), (clients.test, 0), (clients.elsewhere, 1)):
            inputs, labels = part.of(client)
            red, green, blue = inputs.sum((2, 3)).T
            is_green = (labels % 2 + environment + flip) % 2 == 1
            assert torch.equal(green > red, is_green) and (blue < 0.1 * (red + green)).all()


def test_the_test_files_alone_can_be_dealt_out(tmp_path: Path) -> None:
    write_mnist(tmp_path, n_train=40, n_test=60)
    clients = load_federation("painted-mnist", tmp_path, clients=3, source="t10k", scheme="cyclic10")
    assert sum(int(part.counts.sum()) for part in (clients.train, clients.validation, clients.test)) == 60


def test_the_objects_are_read_from_the_archive_or_its_folder(tmp_path: Path) -> None:
    write_coil(tmp_path / "coil-20-proc.zip")
    images, labels = read_coil(tmp_path / "coil-20-proc.zip")
    assert images.shape == (1440, 64, 64) and labels.tolist() == [number for number in range(20) for _ in range(72)]
    assert [int(images[72 * number].mean()) for number in range(20)] == [10 * (number + 1) for number in range(20)]
    with zipfile.ZipFile(tmp_path / "coil-20-proc.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    assert np.array_equal(read_coil(tmp_path / "unpacked" / "coil-20-proc")[0], images)
    clients = load_federation("painted-coil20", tmp_path, clients=50)
    assert clients.classes == 20 and clients.input_shape == (3, 64, 64)
    assert sorted({len(set(clients.train.of(k)[1].tolist())) for k in range(50)})[-1] == 5
    sizes = clients.train.counts + clients.validation.counts + clients.test.counts
    assert sizes.sum() == 1440 and sizes.min() >= 25 and sizes.max() <= 30


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    write_coil(tmp_path / "coil-20-proc.zip", poses=71)
    with pytest.raises(DataError, match=r"lacks obj1__71\.png"):
        load_federation("painted-coil20", tmp_path)
    (tmp_path / "coil-20-proc.zip").write_bytes(b"no archive")
    with pytest.raises(DataError, match="get it again"):
        load_federation("painted-coil20", tmp_path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({f"obj1__{n}.png": bytes(2**20) for n in range(17)}, "unpacks to more than 100 times its own size"),
        ({"obj1__0.png": b"no image"}, "can't be (read|decoded)"),
    ],
)
def test_an_archive_that_would_fill_the_memory_is_refused(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    (tmp_path / "coil-20-proc.zip").write_bytes(zipped(members))
    with pytest.raises(DataError, match=message):
        load_federation("painted-coil20", tmp_path)


def test_an_image_of_many_pixels_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.new("L", (4000, 2)).save(stream, "PNG")
    (tmp_path / "coil-20-proc.zip").write_bytes(zipped({"obj1__0.png": stream.getvalue()}))
    with pytest.raises(DataError, match=r"obj1__0\.png in .* has \(4000, 2\) pixels"):
        load_federation("painted-coil20", tmp_path)
