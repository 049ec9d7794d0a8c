"""Sealed files: whatever byte is changed, the file is refused; any program still reads it."""

import json

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from holdfast.sealed import read_sealed, write_sealed


def sealed(folder, about=None):
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.tensor([True, False]), "c": torch.empty(0, 2)}
    write_sealed(folder / "w.safetensors", tensors, about or {"format": "pt"})
    return folder / "w.safetensors", tensors


def test_what_is_sealed_is_read_here_and_by_any_other_program(tmp_path):
    file, tensors = sealed(tmp_path)
    about, back = read_sealed(file)
    assert about["format"] == "pt" and back.keys() == tensors.keys()
    assert all(torch.equal(back[name], value) for name, value in tensors.items())
    assert all(torch.equal(value, tensors[name]) for name, value in load_file(file).items())


def test_every_single_bit_counts(tmp_path):
    file, _ = sealed(tmp_path)
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            file.write_bytes(changed)
            with pytest.raises((ValueError, SafetensorError)):
                read_sealed(file)
    file.write_bytes(whole)
    read_sealed(file)


@given(cut=st.integers(0, 500), more=st.binary(max_size=9))
def test_a_file_of_another_length_is_refused(tmp_path_factory, cut, more):
    file, _ = sealed(tmp_path_factory.mktemp("sealed"))
    whole = file.read_bytes()
    other = whole[: max(len(whole) - cut, 0)] + more
    if other != whole:
        file.write_bytes(other)
        with pytest.raises((ValueError, SafetensorError, OSError)):
            read_sealed(file)


def test_equal_contents_make_equal_files_and_a_digest_among_the_words_is_left_alone(tmp_path):
    (tmp_path / "x").mkdir()
    about = {"z": '"sha256":"' + "0" * 64 + '"', "a": "1"}
    one, _ = sealed(tmp_path, about)
    other, _ = sealed(tmp_path / "x", dict(reversed(about.items())))
    assert one.read_bytes() == other.read_bytes()
    assert read_sealed(one)[0]["z"] == about["z"]


def test_a_file_without_a_seal_is_read_as_it_is(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "w.safetensors")
    assert torch.equal(read_sealed(tmp_path / "w.safetensors")[1]["a"], torch.ones(2))


def test_a_seal_of_which_one_word_is_gone_is_broken(tmp_path):
    file, tensors = sealed(tmp_path)
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    for word in ("sha256", "sealed"):
        left = {name: text for name, text in header["__metadata__"].items() if name != word}
        text = json.dumps({**header, "__metadata__": left}).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
        with pytest.raises(ValueError, match="SHA-256"):
            read_sealed(file)
    assert tensors
