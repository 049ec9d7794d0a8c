import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.data.readers.idx import read_idx
from holdfast.errors import DataError


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(root: Path, folder: str = "MNIST", n_train: int = 40, n_test: int = 20, *, packed: bool = True) -> None:
    """A tiny tree in torchvision's layout; the pixel at (0, 0) is the image's number, its label that modulo 10."""
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, n in (("train", n_train), ("t10k", n_test)):
        images = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
        images[:, 0, 0] = np.arange(n)
        for kind, array in (("images-idx3", images), ("labels-idx1", (np.arange(n) % 10).astype(np.uint8))):
            path = raw / f"{part}-{kind}-ubyte"
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx_bytes(array), 1))
            else:
                path.write_bytes(idx_bytes(array))


@pytest.mark.parametrize("shape", [(5,), (4, 3, 2), (0, 3, 2)])
def test_what_was_written_is_read(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "a").write_bytes(idx_bytes(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx_bytes(array)))
    for name in ("a", "a.gz"):
        read = read_idx(tmp_path / name, len(shape))
        assert np.array_equal(read, array) and read.flags.writeable


def damaged(kind: str) -> tuple[str, bytes]:
    whole = idx_bytes(np.zeros((4, 3, 2), np.uint8))
    return {
        "short": ("a", whole[:-1]),
        "long": ("a", whole + b"x"),
        "header only": ("a", whole[:9]),
        "empty": ("a", b""),
        "labels": ("a", idx_bytes(np.zeros(4, np.uint8))),
        "floats": ("a", b"\0\0\x0d\x03" + whole[4:]),
        "cut gzip": ("a.gz", gzip.compress(whole)[:-9]),
        "no gzip": ("a.gz", whole),
    }[kind]


@pytest.mark.parametrize("shape", [(2**31, 2**31, 2**31), (4000, 100, 100)])
def test_a_gzip_file_that_promises_gigabytes_is_refused_before_it_is_unpacked(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    header = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in shape)
    (tmp_path / "a.gz").write_bytes(gzip.compress(header + bytes(40_000_000 if shape[0] == 4000 else 5)))
    with pytest.raises(DataError, match=r"promises \d+ bytes, more than 100 times its own size"):
        read_idx(tmp_path / "a.gz", 3)


def test_a_gzip_file_is_read_no_further_than_its_header_promises(tmp_path: Path) -> None:
    whole = idx_bytes(np.zeros((4, 3, 2), np.uint8))
    (tmp_path / "a.gz").write_bytes(gzip.compress(whole + bytes(50_000_000)))
    with pytest.raises(DataError, match="has at least 41 bytes and its header promises 40"):
        read_idx(tmp_path / "a.gz", 3)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("short", "has 39 bytes and its header promises 40"),
        ("long", "has at least 41 bytes and its header promises 40"),
        ("header only", "promises"),
        ("empty", "starts with nothing"),
        ("labels", "starts with 00 00 08 01; .* starts with 00 00 08 03"),
        ("floats", "starts with 00 00 0d 03"),
        ("cut gzip", "damaged gzip"),
        ("no gzip", "damaged gzip"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, kind: str, message: str) -> None:
    name, content = damaged(kind)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(tmp_path / name, 3)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_the_splits_are_disjoint_and_ids_are_rows_of_the_files(
    tmp_path: Path, name: str, folder: str, packed: bool
) -> None:
    write_mnist(tmp_path, folder, packed=packed)
    splits = load(name, tmp_path, validation=8)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [32, 8, 20]
    ids = torch.cat([splits.train.ids, splits.validation.ids, splits.test.ids])
    assert sorted(ids.tolist()) == list(range(60))
    for part, first in ((splits.train, 0), (splits.validation, 0), (splits.test, 40)):
        batch, labels = part.gather(torch.arange(len(part)))
        rows = part.ids - first
        assert batch.shape[1:] == (1, 28, 28) and batch.dtype == torch.float32
        assert torch.equal((batch[:, 0, 0, 0] * 255).round().long(), rows)
        assert torch.equal(labels, rows % 10)


def test_the_split_depends_on_the_seed(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    first, again, other = (load("mnist", tmp_path, validation=8, seed=seed).validation.ids for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    path = tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(idx_bytes(np.zeros(19, np.uint8)))
    with pytest.raises(DataError, match="19 labels for 20 images"):
        load("mnist", tmp_path, validation=8)
    path.write_bytes(idx_bytes(np.full(20, 11, np.uint8)))
    with pytest.raises(DataError, match="label 11 at position 0"):
        load("mnist", tmp_path, validation=8)


@pytest.mark.shared_data
def test_the_real_mnist_has_its_known_sizes(shared_data: Path) -> None:
    splits = load("mnist", shared_data)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [50_000, 10_000, 10_000]
    assert splits.test.class_counts().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    first = int((splits.train.ids == splits.train.ids.min()).nonzero())
    assert splits.train.gather(torch.tensor([first]))[0].max() <= 1
