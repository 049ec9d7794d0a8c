"""Files that somebody damaged, or made to do harm, are read or refused with one of our errors, whatever is in them."""

import copy
import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.data.readers.idx import read_idx
from holdfast.data.readers.leaf import read_leaf
from holdfast.data.readers.tables import read_columns, whole_numbers
from holdfast.errors import HoldfastError
from holdfast.sealed import read_sealed, write_sealed
from holdfast.training.state import load_state, save_state


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


@st.composite
def damaged(draw, content):
    """Some bytes changed, inserted, or cut off, at several places."""
    found = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(found)))
        kind = draw(st.sampled_from(["change", "insert", "cut", "end"]))
        some = draw(st.binary(min_size=1, max_size=8))
        if kind == "change":
            found[place : place + len(some)] = some
        elif kind == "insert":
            found[place:place] = some
        elif kind == "cut":
            del found[place : place + len(some)]
        else:
            del found[place:]
    return bytes(found)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def twisted(draw, tree):
    """A tree of plain values with some of its parts replaced by anything."""
    found = copy.deepcopy(tree)
    for _ in range(draw(st.integers(0, 3))):
        here = found
        while True:
            keys = list(here) if isinstance(here, dict) else range(len(here))
            if not keys:
                break
            key = draw(st.sampled_from(list(keys)))
            if not isinstance(here[key], dict | list) or draw(st.integers(0, 3)) == 0:
                here[key] = draw(plain)
                break
            here = here[key]
    return found


def read_or_refused(read, *arguments):
    try:
        return read(*arguments)
    except HoldfastError as error:
        assert str(error)
        return None


IDX = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, *range(8)])


@given(damaged(IDX), st.booleans())
def test_idx_files_are_read_as_they_say_or_refused(folder, content, zipped):
    path = folder / ("digits.gz" if zipped else "digits")
    path.write_bytes(gzip.compress(content) if zipped else content)
    found = read_or_refused(read_idx, path, 3)
    if found is not None:
        assert found.tobytes() == content[16:]


@given(damaged(gzip.compress(IDX, mtime=0)))
def test_damaged_gzip_files_are_read_or_refused(folder, content):
    (folder / "digits.gz").write_bytes(content)
    read_or_refused(read_idx, folder / "digits.gz", 3)


@example(content=b"file,label\na,\x1c1\n")
@example(content=b"file,label\na,99999999999999999999\n")
@given(content=damaged(b'file,label\n"a,1",0\nb,1\n\xc3\xa9,1\n'))
def test_csv_files_are_read_or_refused(folder, content):
    path = folder / "table.csv"
    path.write_bytes(content)
    found = read_or_refused(read_columns, path, ["file", "label"])
    if found is not None:
        assert len(found["file"]) == len(found["label"]) > 0
        read_or_refused(whole_numbers, path, "label", found["label"])


LEAF = {
    "users": ["ann", "bob"],
    "num_samples": [2, 3],
    "user_data": {
        "ann": {"x": [[0.0, 1], [1, 2]], "y": [0, 1]},
        "bob": {"x": [[3, 4], [5, 6], [7, 8]], "y": [1, 1, 0]},
    },
}


def numbers(x, y):
    return np.array(x, np.float32), np.array(y, np.int64)


def write_leaf(folder, train: bytes):
    for part, content in (("train", train), ("test", json.dumps(LEAF).encode())):
        (folder / "leaf" / part).mkdir(parents=True, exist_ok=True)
        (folder / "leaf" / part / "all.json").write_bytes(content)
    return folder / "leaf"


@example(content={**LEAF, "user_data": {**LEAF["user_data"], "ann": {"x": None, "y": [0, 1]}}})
@example(content={**LEAF, "user_data": {**LEAF["user_data"], "ann": {"x": [[0], [1]], "y": [1e30, 1]}}})
@given(content=twisted(LEAF))
def test_leaf_files_with_other_values_are_read_or_refused(folder, content):
    read_or_refused(read_leaf, write_leaf(folder, json.dumps(content).encode()), numbers, None, 0)


@given(damaged(json.dumps(LEAF).encode()))
def test_leaf_files_with_other_bytes_are_read_or_refused(folder, content):
    read_or_refused(read_leaf, write_leaf(folder, content), numbers, None, 0)


STATE = {"number": 3, "weights": torch.arange(4.0), "list": [torch.tensor(1), None, "word"], "pair": (1, {"deep": 2.5})}


@pytest.fixture(scope="module")
def state(folder):
    save_state(STATE, folder / "whole.safetensors")
    return (folder / "whole.safetensors").read_bytes()


@given(st.data())
def test_checkpoints_with_other_bytes_are_read_or_refused(folder, state, data):
    path = folder / "state.safetensors"
    path.write_bytes(data.draw(damaged(state)))
    found = read_or_refused(load_state, path)
    assert found is None or isinstance(found, dict)


@given(st.data())
def test_checkpoints_with_another_tree_are_read_or_refused(folder, state, data):
    """Sealed again, as somebody would who lies: the seal is whole and the tree is not what was saved."""
    (folder / "whole.safetensors").write_bytes(state)
    about, tensors = read_sealed(folder / "whole.safetensors")
    tree = data.draw(twisted(json.loads(tensors[""].numpy().tobytes())))
    lie = torch.frombuffer(bytearray(json.dumps(tree).encode()), dtype=torch.uint8)
    path = folder / "state.safetensors"
    write_sealed(
        path, {**{name: tensor.clone() for name, tensor in tensors.items()}, "": lie}, {"format": about["format"]}
    )
    found = read_or_refused(load_state, path)
    assert found is None or isinstance(found, dict)


def sent(values: np.ndarray) -> bytes:
    """As Flower serializes an array."""
    from io import BytesIO

    stream = BytesIO()
    np.save(stream, values)
    return stream.getvalue()


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@given(damaged(sent(VALUES)))
def test_arrays_from_other_machines_are_read_or_refused(data):
    from holdfast.integrations.flower.messages.arrays import read_array

    claimed = SimpleNamespace(stype="numpy.ndarray", dtype="float32", shape=(2, 3), data=data)
    found = read_or_refused(read_array, "update", claimed, (2, 3), np.dtype(np.float32))
    if found is not None:
        assert found.shape == (2, 3) and found.dtype == np.float32
