import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from holdfast.data import load
from holdfast.data.sets.images.cifar import CIFAR10_MEAN, CIFAR10_STD, read_binary, read_parquet
from holdfast.errors import DataError


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(n, 3, 32, 32), dtype=np.uint8), rng.integers(10, size=n)


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet(path: Path, images: np.ndarray, labels: np.ndarray, column: str = "img") -> None:
    path.parent.mkdir(exist_ok=True)
    cells = [{"bytes": png(image), "path": f"{i}.png"} for i, image in enumerate(images)]
    pq.write_table(pa.table({column: cells, "label": labels}), path)


def write_binary(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(bytes([y]) + x.tobytes() for x, y in zip(images, labels, strict=True)))


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path, np.ndarray, np.ndarray]:
    """The same 20 + 6 images as parquet and as binary batches."""
    (images, labels), (test_images, test_labels) = sample(20, 0), sample(6, 1)
    hub, original = tmp_path / "hub", tmp_path / "original"
    hub.mkdir()
    original.mkdir()
    write_parquet(hub / "cifar10/train.parquet", images, labels)
    write_parquet(hub / "cifar10/test.parquet", test_images, test_labels)
    for batch in range(5):
        rows = slice(4 * batch, 4 * batch + 4)
        write_binary(original / f"cifar-10-batches-bin/data_batch_{batch + 1}.bin", images[rows], labels[rows])
    write_binary(original / "cifar-10-batches-bin/test_batch.bin", test_images, test_labels)
    return hub, original, images, labels


def test_both_forms_give_the_arrays_that_were_written(trees: tuple[Path, Path, np.ndarray, np.ndarray]) -> None:
    hub, original, images, labels = trees
    batches = [original / f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
    for read_images, read_labels in (read_parquet(hub / "cifar10/train.parquet"), read_binary(batches)):
        assert read_images.dtype == np.uint8
        np.testing.assert_array_equal(read_images, images)
        np.testing.assert_array_equal(read_labels, labels)


def test_both_forms_give_the_same_splits(trees: tuple[Path, Path, np.ndarray, np.ndarray]) -> None:
    hub, original, images, _ = trees
    for part in ("train", "validation", "test"):
        a, b = (getattr(load("cifar10", root, validation=5), part) for root in (hub, original))
        assert torch.equal(a.ids, b.ids) and torch.equal(a.labels, b.labels)
        everything = torch.arange(len(a))
        assert torch.equal(a.inputs.gather(everything), b.inputs.gather(everything))
    train = load("cifar10", hub, validation=5).train
    batch, _ = train.gather(torch.tensor([3]))
    mean, std = (np.array(v).reshape(3, 1, 1) for v in (CIFAR10_MEAN, CIFAR10_STD))
    np.testing.assert_allclose(batch[0], (images[train.ids[3]] / 255 - mean) / std, atol=1e-5)


def test_the_image_column_may_be_called_image(tmp_path: Path) -> None:
    images, labels = sample(3, 2)
    write_parquet(tmp_path / "a.parquet", images, labels, "image")
    np.testing.assert_array_equal(read_parquet(tmp_path / "a.parquet")[0], images)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pixels": [1], "label": [0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column 'img'"):
        read_parquet(tmp_path / "a.parquet")
    pq.write_table(pa.table({"img": [{"bytes": b""}], "labels": [0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column 'label'; did you mean 'labels'"):
        read_parquet(tmp_path / "a.parquet")


def test_a_broken_image_is_named_by_its_row(tmp_path: Path) -> None:
    cells = [{"bytes": png(image)} for image in sample(3, 0)[0]]
    cells[2]["bytes"] = cells[2]["bytes"][:200]
    pq.write_table(pa.table({"img": cells, "label": [0, 1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="row 2 of"):
        read_parquet(tmp_path / "a.parquet")


def test_truncated_files_are_named(tmp_path: Path) -> None:
    images, labels = sample(2, 0)
    write_binary(tmp_path / "a.bin", images, labels)
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"a\.bin has 6145 bytes"):
        read_binary([tmp_path / "a.bin"])
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match=r"a\.parquet isn't a readable parquet file"):
        read_parquet(tmp_path / "a.parquet")


def test_a_label_above_nine_is_refused(tmp_path: Path) -> None:
    images, _ = sample(2, 0)
    write_binary(tmp_path / "a.bin", images, np.array([3, 10]))
    with pytest.raises(DataError, match="label 10 in record 1"):
        read_binary([tmp_path / "a.bin"])


@pytest.mark.shared_data
def test_the_real_test_images_decode(shared_data: Path) -> None:
    images, labels = read_parquet(shared_data / "cifar10/test.parquet")
    assert images.shape == (10_000, 3, 32, 32)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert np.abs(images.mean((0, 2, 3)) / 255 - CIFAR10_MEAN).max() < 0.01
