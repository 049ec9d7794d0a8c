import zipfile

import numpy as np
import pytest
import torch

from holdfast.data import read
from holdfast.errors import DataError

N = 30


def write(path, **other):
    rng = np.random.default_rng(0)
    arrays = {"inputs": rng.normal(size=(N, 5)).astype(np.float32), "labels": np.arange(N) % 2}
    np.savez(path, **{name: array for name, array in {**arrays, **other}.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        (np.zeros((N, 5), np.float64), (5,)),
        (np.zeros((N, 8, 8, 3), np.uint8), (3, 8, 8)),
        (np.zeros((N, 3, 8, 8), np.uint8), (3, 8, 8)),
        (np.zeros((N, 8, 8), np.uint8), (1, 8, 8)),
        (np.zeros((N, 8, 9), np.float32), (8, 9)),
        (np.zeros((N, 8, 8, 1), np.float16), (1, 8, 8)),
        (np.zeros(N, np.int64), (1,)),
        (np.zeros((N, 5), ">f4"), (5,)),
        (np.zeros((N, 5), np.bool_), (5,)),
        (np.zeros((N, 2, 2, 2, 2), np.float32), (2, 2, 2, 2)),
    ],
)
def test_inputs_of_any_shape_and_type_are_what_a_model_takes(tmp_path, inputs, shape):
    train = read(write(tmp_path / "a.npz", inputs=inputs)).train
    assert train.input_shape == shape
    assert train.gather(torch.arange(3))[0].dtype == torch.float32


def test_pixels_are_turned_and_scaled_and_numbers_left(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (N, 6, 7, 3), np.uint8)
    train = read(write(tmp_path / "a.npz", inputs=pixels)).train
    expected = torch.from_numpy(pixels).permute(0, 3, 1, 2)[train.ids].float() / 255
    torch.testing.assert_close(train.gather(torch.arange(len(train)))[0], expected)
    numbers = np.random.default_rng(0).normal(size=(N, 4))
    train = read(write(tmp_path / "b.npz", inputs=numbers)).train
    torch.testing.assert_close(train.gather(torch.arange(len(train)))[0], torch.from_numpy(numbers)[train.ids].float())


def test_vectors_beside_the_inputs_are_labels_groups_and_parts(tmp_path):
    words = np.array(["cat", "dog"])[np.arange(N) % 2]
    parts = np.array(["train", "train", "val", "test", "test"] * 6)
    splits = read(write(tmp_path / "a.npz", labels=words, attributes=np.arange(N) % 3, split=parts))
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [12, 6, 12]
    assert splits.train.class_names == ("cat", "dog") and splits.train.n_groups == 6
    groups = read(write(tmp_path / "b.npz", groups=np.arange(N) % 5)).train
    assert groups.n_groups == 5 and (groups.groups == groups.ids % 5).all()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"inputs": None}, "no array 'inputs'; it has labels"),
        ({"inputs": np.array([{}] * N, object)}, "isn't an npz file of plain arrays .*pickle"),
        ({"labels": np.array([{}] * N, object)}, "isn't an npz file of plain arrays"),
        ({"inputs": np.full((N, 5), np.nan)}, r"NaN or infinite numbers .* in 30 examples, the first has id 0"),
        ({"inputs": np.where(np.arange(N * 5).reshape(N, 5) == 22, 1e300, 0)}, "in 1 example, the first has id 4"),
        ({"inputs": np.zeros((N, 5), complex)}, "complex128 .*give numbers"),
        ({"inputs": np.zeros((0, 5))}, r"shape \(0, 5\)"),
        ({"inputs": np.array(["a"] * N)}, "give numbers"),
        ({"labels": np.arange(3)}, r"labels in .* have shape \(3,\), inputs \(30, 5\)"),
        ({"labels": np.array(3)}, r"shape \(\)"),
        ({"labels": np.arange(N) / 7}, "quantity and not a class"),
        ({"labels": np.zeros((N, 4), int)}, "several labels per example"),
        ({"labels": np.zeros((N, 4, 4), int)}, "label per token or pixel"),
        ({"labels": np.zeros(N, "M8[D]")}, "holds times"),
        ({"labels": np.zeros(N, [("a", int)])}, "labels in .* is of type"),
        ({"labels": None}, "no column that is called label"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_arrays_is_a_sentence(tmp_path, other, says):
    with pytest.raises(DataError, match=says):
        read(write(tmp_path / "a.npz", **other))


def test_a_bomb_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("inputs.npy", bytes(1 << 25))
    with pytest.raises(DataError, match=r"promises 33554432 bytes in \d+"):
        read(tmp_path / "a.npz")
