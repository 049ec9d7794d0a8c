import os
import pickle
import pickletools

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.errors import DataError
from holdfast.poisoning.attacks.public_benchmark.pickle_listing import Call, Name, list_calls
from holdfast.poisoning.attacks.public_benchmark.pickled_data import read_pickled

PROTOCOLS = [2, 3, 4, 5]


def written(folder, value, protocol=4):
    path = folder / "value.pickle"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_come_back(tmp_path, protocol):
    shared = [1, 2]
    value = {"a": [True, None, 2.5, -3, 2**80], "b": ("text", b"bytes", ()), "c": shared, "d": shared, 5: {}}
    assert read_pickled(written(tmp_path, value, protocol)) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_numbers_images_and_tensors_are_rebuilt_from_their_bytes(tmp_path, protocol):
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    arrays = [array, np.asfortranarray(array), array[:, ::2], np.array([True, False]), array.astype(">f4"), array[:0]]
    got = read_pickled(written(tmp_path, arrays, protocol))
    assert all(np.array_equal(a, b) for a, b in zip(got, arrays, strict=True))
    assert read_pickled(written(tmp_path, [np.int64(7), np.float32(0.5)], protocol)) == [7, 0.5]
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    colour, grey = read_pickled(
        written(tmp_path, [Image.fromarray(pixels), Image.fromarray(pixels[:, :, 0])], protocol)
    )
    assert np.array_equal(colour, pixels) and np.array_equal(grey[:, :, 0], pixels[:, :, 0])
    tensor = torch.rand(3, 5, 5)
    for wanted in (tensor, tensor[1:, :, 2], tensor.permute(2, 0, 1), torch.arange(4)):
        assert np.array_equal(read_pickled(written(tmp_path, wanted, protocol)), wanted.numpy())


def test_a_call_is_written_down_and_not_made():
    listed = list_calls(pickle.dumps(pickletools.dis))
    assert listed == Name("pickletools.dis")
    call = list_calls(pickle.dumps(np.int64(3)))
    assert isinstance(call, Call) and call.name.endswith("multiarray.scalar")


class Evil:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path, protocol):
    """The public loaders call pickle.load, which would make the folder."""
    path = written(tmp_path, [Evil(tmp_path / "made")], protocol)
    with pytest.raises(DataError, match=r"asks to call \w+\.mkdir, which is not data"):
        read_pickled(path)
    assert not (tmp_path / "made").exists()


def test_what_is_no_data_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        read_pickled(tmp_path / "missing.pickle")
    for content in (b"hello", pickle.dumps([1, 2])[:-3], b"", b"\x80\x04."):
        path = tmp_path / "bad.pickle"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"damaged or no pickle|not read"):
            read_pickled(path)
    with pytest.raises(DataError, match=r"refers to \w+\.system"):
        read_pickled(written(tmp_path, os.system))
    with pytest.raises(DataError, match="not of numbers"):
        read_pickled(written(tmp_path, np.array([{}, []], dtype=object)))
    with pytest.raises(DataError, match="EMPTY_SET"):
        read_pickled(written(tmp_path, {1, 2}))


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path):
    content = pickle.dumps(torch.arange(4), protocol=2)
    assert content.count(b"K\x04\x85") == 1
    path = tmp_path / "large.pickle"
    path.write_bytes(content.replace(b"K\x04\x85", b"K\x63\x85"))
    with pytest.raises(DataError, match="larger than its storage"):
        read_pickled(path)
