import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.errors import DataError


def write(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"inputs": np.arange(40.0).reshape(20, 2), "labels": np.arange(20) % 2}
    np.savez(path, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return path


def test_the_split_array_decides_the_parts(tmp_path: Path) -> None:
    attributes = np.arange(20) // 5
    for split in (np.arange(20) % 3, np.array(["train", "val", "test"])[np.arange(20) % 3]):
        path = write(tmp_path / "a.npz", split=split, attributes=attributes)
        splits = load("arrays", path=path)
        assert splits.validation.ids.tolist() == list(range(1, 20, 3))
        inputs, labels = splits.test.gather(torch.tensor([1]))
        assert inputs.tolist() == [[10.0, 11.0]] and labels.tolist() == [1]
        assert inputs.dtype == torch.float32
        assert splits.train.n_groups == splits.test.n_groups == 8


def test_without_a_split_the_parts_are_drawn(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", groups=np.arange(20) % 4)
    splits = load("arrays", path=str(path), validation=0.2, test=0.3)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [10, 4, 6]
    assert splits.train.n_groups == 4
    assert torch.equal(load("arrays", path=path).train.ids, load("arrays", path=path).train.ids)


def test_pixels_are_scaled_when_gathered(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", inputs=np.full((20, 1, 2, 2), 255, np.uint8))
    assert load("arrays", path=path).train.gather(torch.tensor([0]))[0].tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "no array 'labels'; it has inputs"),
        ({"labels": np.zeros(19, int)}, r"labels in .* have shape \(19,\), inputs \(20, 2\)"),
        ({"labels": np.array(1)}, r"labels in .* have shape \(\)"),
        ({"label": np.zeros(20, int)}, "unknown array 'label'; did you mean 'labels'"),
        ({"labels": np.full(20, -1)}, "label -1"),
        ({"labels": np.array([{}] * 20)}, "isn't an npz file of plain arrays"),
        ({"split": np.full(20, 7)}, "'7' in column 'split' of row 1"),
        ({"split": np.zeros(20, int)}, "no row whose 'split' is val"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load("arrays", path=write(tmp_path / "a.npz", **changes))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*b\.npz"):
        load("arrays", path=tmp_path / "b.npz")
    path = write(tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="isn't an npz file"):
        load("arrays", path=path)
    path.write_text("nothing")
    with pytest.raises(DataError, match="isn't an npz file"):
        load("arrays", path=path)
    np.save(tmp_path / "c.npy", np.zeros(3))
    with pytest.raises(DataError, match="isn't an npz file"):
        load("arrays", path=tmp_path / "c.npy")


def npy(shape: tuple[int, ...], content: bytes, dtype: str = "<f8") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (npy((10**13, 10), bytes(80)), r"promises shape \(10000000000000, 10\)"),
        (npy((1000,), bytes(79)), "promises shape"),
        (b"nothing", "isn't an npz file"),
    ],
)
def test_an_array_larger_than_its_file_takes_no_memory(tmp_path: Path, inputs: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("inputs.npy", inputs)
        archive.writestr("labels.npy", npy((10,), bytes(80), "<i8"))
    with pytest.raises(DataError, match=message):
        load("arrays", path=tmp_path / "a.npz")


def test_a_member_that_promises_more_than_can_be_deflated_is_refused(tmp_path: Path) -> None:
    claimed = 10**9
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", npy((claimed // 8,), bytes(80)))
        size = archive.infolist()[0].file_size
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content.replace(size.to_bytes(4, "little"), claimed.to_bytes(4, "little")))
    with pytest.raises(DataError, match=r"inputs\.npy promises 1000000000 bytes in"):
        load("arrays", path=tmp_path / "a.npz")


def test_arrays_of_zeros_may_be_compressed_as_far_as_they_go(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", inputs=np.zeros((300, 4000)), labels=np.arange(300) % 2)
    assert len(load("arrays", path=tmp_path / "a.npz").train) == 210
