import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.errors import DataError
from holdfast.poisoning.attacks.public_benchmark import pickled_data
from holdfast.poisoning.attacks.public_benchmark.pickled_data import read_pickled

PROTOCOLS = [2, 3, 4, 5]


def written(folder, value, protocol=4):
    path = folder / "value.pickle"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_come_back(tmp_path, protocol):
    shared = [1, 2]
    value = {"a": [True, None, 2.5, -3, 2**80], "b": ("text", b"bytes", ()), "c": shared, "d": shared, "e": {}}
    assert read_pickled(written(tmp_path, value, protocol)) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_numbers_images_and_tensors_are_rebuilt_from_their_bytes(tmp_path, protocol):
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    arrays = [array, np.asfortranarray(array), array[:, ::2], np.array([True, False]), array.astype(">f4"), array[:0]]
    got = read_pickled(written(tmp_path, arrays, protocol))
    assert all(np.array_equal(a, b) for a, b in zip(got, arrays, strict=True))
    assert all(one.dtype.isnative and one.flags.writeable for one in got)
    assert read_pickled(written(tmp_path, [np.int64(7), np.float32(0.5)], protocol)) == [7, 0.5]
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    colour, grey = read_pickled(
        written(tmp_path, [Image.fromarray(pixels), Image.fromarray(pixels[:, :, 0])], protocol)
    )
    assert np.array_equal(colour, pixels) and np.array_equal(grey[:, :, 0], pixels[:, :, 0])
    tensor = torch.rand(3, 5, 5)
    kinds = [torch.zeros(3).to(kind) for kind in (torch.float64, torch.float16, torch.uint8, torch.int32, torch.bool)]
    for wanted in (tensor, tensor[1:, :, 2], tensor.permute(2, 0, 1), torch.arange(4), tensor[:0], *kinds):
        got = read_pickled(written(tmp_path, wanted, protocol))
        assert np.array_equal(got, wanted.numpy()) and got.dtype == wanted.numpy().dtype


def test_what_is_no_data_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        read_pickled(tmp_path / "missing.pickle")
    with pytest.raises(DataError, match="isn't a file"):
        read_pickled(tmp_path)
    for content in (b"hello", pickle.dumps([1, 2])[:-3], b"", b"\x80\x04.", b"\x80\x04K\x01t."):
        path = tmp_path / "bad.pickle"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"damaged or no pickle|not read"):
            read_pickled(path)
    for value, reason in {
        "function": (pickle.dumps, r"asks for '_pickle\.dumps'"),
        "objects": (np.array([{}, []], dtype=object), "not of numbers"),
        "texts": (np.array(["a"]), "not of numbers"),
        "complex": (torch.zeros(2, dtype=torch.complex64), "not of numbers"),
        "set": ({1, 2}, "EMPTY_SET"),
        "keys": ({(1, 2): 3}, "keys are not text"),
        "image": (Image.new("CMYK", (2, 2)), "neither RGB nor L"),
        "class": ([np.ndarray], "function or a class"),
    }.values():
        with pytest.raises(DataError, match=reason):
            read_pickled(written(tmp_path, value))


def test_a_file_that_is_too_large_is_not_opened(tmp_path, monkeypatch):
    path = written(tmp_path, [1, 2])
    monkeypatch.setattr(pickled_data, "MOST_BYTES", path.stat().st_size)
    assert read_pickled(path) == [1, 2]
    monkeypatch.setattr(pickled_data, "MOST_BYTES", path.stat().st_size - 1)
    with pytest.raises(DataError, match="at most"):
        read_pickled(path)


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path):
    content = pickle.dumps(torch.arange(4), protocol=2)
    assert content.count(b"K\x04\x85") == 1
    path = tmp_path / "large.pickle"
    path.write_bytes(content.replace(b"K\x04\x85", b"K\x63\x85"))
    with pytest.raises(DataError, match="larger than its storage"):
        read_pickled(path)


def test_values_used_again_are_read_and_those_used_too_often_are_refused(tmp_path):
    image = np.zeros((1000, 1000, 1), np.uint8)
    first, second, *_ = read_pickled(written(tmp_path, [image] * 20))
    assert np.array_equal(first, image) and first is not second
    with pytest.raises(DataError, match="many times larger than the file"):
        read_pickled(written(tmp_path, [image] * 100))
