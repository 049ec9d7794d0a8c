"""Files as strangers have them: what other programs write is read, and guesses are told, or refused in a sentence."""

import bz2
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from holdfast.data import read
from holdfast.data.own.schema import Schema
from holdfast.data.own.tables import read_table
from holdfast.errors import DataError
from tests.data.own.wards import wards

ROWS = wards()


def table(separator=",", write=str):
    lines = [separator.join(ROWS), *(separator.join(map(write, row)) for row in zip(*ROWS.values(), strict=True))]
    return "\n".join(lines) + "\n"


def objects():
    return [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]


def compressed(codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(table().encode())
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv.bz2", bz2.compress(table().encode())),
        ("t.csv.zst", compressed("zstd")),
        ("t.csv.lz4", compressed("lz4")),
        ("t.jsonl.gz", gzip.compress("\n".join(map(json.dumps, objects())).encode())),
        ("t.json", json.dumps(objects(), indent=1).encode()),
        ("t.json.gz", gzip.compress(json.dumps(objects()).encode())),
        ("t.csv", table().replace("age,beds", " age , beds").encode()),
        ("t.csv", table(";", lambda value: str(value).replace(".", ",")).encode()),
        ("t.tsv", table("\t", lambda value: f'"{value}"'.replace(".", ",")).encode()),
    ],
    ids=["bz2", "zst", "lz4", "jsonl.gz", "a list", "a list, compressed", "blanks", "decimal commas", "quoted commas"],
)
def test_the_same_table_is_read_as_other_programs_write_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "plain.csv").write_text(table())
    found, plain = read_table(tmp_path / name), read_table(tmp_path / "plain.csv")
    assert found.to_pydict() == plain.to_pydict()
    assert Schema.to_json(read(tmp_path / name).schema) == Schema.to_json(read(tmp_path / "plain.csv").schema)


def test_a_number_of_thousands_is_not_taken_for_a_fraction(tmp_path):
    (tmp_path / "t.csv").write_text("n;label\n" + "".join(f"{1 + row},234;{'ab'[row % 2]}\n" for row in range(60)))
    assert read_table(tmp_path / "t.csv")["n"][0].as_py() == "1,234"
    (tmp_path / "t.csv").write_text("n;m;label\n" + "".join(f"{row},5;0.5;{'ab'[row % 2]}\n" for row in range(60)))
    assert read_table(tmp_path / "t.csv")["m"][0].as_py() == 0.5


@pytest.mark.parametrize("write", ["{},000.50", "{}%", "${}.00", "1'{}00"])
def test_numbers_that_only_people_can_read_are_told(tmp_path, write):
    rows = "".join(f'"{write.format(row % 7)}",{row},{"ab"[row % 2]}\n' for row in range(60))
    (tmp_path / "t.csv").write_text("price,x,label\n" + rows)
    assert any("'price' holds numbers written as words" in note for note in read(tmp_path / "t.csv").notes)
    assert not any("warning" in note for note in read(tmp_path / "t.csv", features=["x"]).notes)


def test_words_with_digits_are_words(tmp_path):
    (tmp_path / "t.csv").write_text("w,label\n" + "".join(f"ward-{row % 4},{'ab'[row % 2]}\n" for row in range(60)))
    assert not any("warning" in note for note in read(tmp_path / "t.csv").notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("# made by a device\n" + table(), "as many cells as the first line"),
        ("Report of ward 7\n\n" + table(), "as many cells as the first line"),
        (table().replace("\n", ",\n").replace(",\n", "\n", 1), "as many cells as the first line"),
        (table().partition("\n")[2], "its first line seems to be data"),
    ],
    ids=["comment", "title", "a comma too much", "no header"],
)
def test_what_is_wrong_with_a_first_line_is_said(tmp_path, content, says):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=says):
        read(tmp_path / "t.csv")


def test_a_comma_at_the_end_of_each_line_makes_no_names(tmp_path):
    (tmp_path / "t.csv").write_text(table().replace("\n", ",\n"))
    splits = read(tmp_path / "t.csv")
    assert splits.train.names is None and not any(note.startswith("id:") for note in splits.notes)


def test_files_in_folders_of_parts_are_these_parts_and_json_beside_tables_describes_them(tmp_path):
    whole = pa.table(ROWS)
    for part, rows in (("train", whole.slice(0, 40)), ("test", whole.slice(40))):
        (tmp_path / "folders" / part).mkdir(parents=True)
        pq.write_table(rows, tmp_path / "folders" / part / "a.parquet")
        (tmp_path / "files").mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "files" / f"{part}-00000-of-00001.parquet")
    (tmp_path / "files" / "dataset_info.json").write_text("{}")
    for place in ("folders", "files"):
        assert len(read(tmp_path / place).test) == 20, place


def test_a_list_of_other_things_than_objects_is_a_sentence(tmp_path):
    for content in ("[1, 2]", "[" * 100_000, '[{"a": NaN}]', "[]"):
        (tmp_path / "t.json").write_text(content)
        with pytest.raises(DataError):
            read(tmp_path / "t.json")


@pytest.mark.parametrize("name", ["{}_{}", "{1}_{0}"], ids=["x_train", "train_x"])
def test_arrays_of_parts_are_these_parts(tmp_path, name):
    rng = np.random.default_rng(0)
    arrays = {
        name.format(*key): rng.integers(0, 255, (rows, 4, 4)).astype(np.uint8) if key[0] == "x" else np.arange(rows) % 2
        for part, rows in (("train", 40), ("val", 8), ("test", 12))
        for key in (("x", part), ("y", part))
    }
    np.savez(tmp_path / "a.npz", **arrays)
    splits = read(tmp_path / "a.npz")
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [40, 8, 12]
    first = splits.test.inputs.gather(torch.tensor([0]))
    assert np.allclose(first[0, 0] * 255, arrays[name.format("x", "test")][0])


def test_labels_in_a_column_and_pixels_of_16_bits_are_understood(tmp_path):
    pixels = np.linspace(0, 65_535, 60 * 16).reshape(60, 4, 4).astype(np.uint16)
    np.savez(tmp_path / "a.npz", images=pixels, labels=(np.arange(60) % 2)[:, None])
    splits = read(tmp_path / "a.npz")
    assert any("16 bits are scaled" in note for note in splits.notes) and splits.train.input_shape == (1, 4, 4)
    everything = splits.train.inputs.gather(torch.arange(len(splits.train)))
    assert np.allclose(everything[:, 0], pixels[splits.train.ids.numpy()] / 65_535)


def test_parts_of_the_hub_without_labels_are_left_out(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(60)), "label": [row % 2 for row in range(60)]})
    unlabelled = datasets.Dataset.from_dict({"x": [1] * 9, "label": [-1] * 9})
    datasets.DatasetDict(train=rows, unsupervised=unlabelled).save_to_disk(str(tmp_path / "saved"))
    splits = read(tmp_path / "saved")
    assert sum(map(len, (splits.train, splits.validation, splits.test))) == 60
    assert "left out: unsupervised (neither train, validation nor test)" in splits.notes


def test_no_place_is_not_the_folder_one_stands_in():
    with pytest.raises(DataError, match="empty text"):
        read(" ")


def test_an_attribute_with_a_value_per_row_can_be_seen_in_what_is_said(tmp_path):
    write = "".join(f"{row},{row % 7},{'xy'[row % 2]}\n" for row in range(40))
    (tmp_path / "t.csv").write_text("ward,age,label\n" + write)
    with pytest.raises(DataError, match="three rows of a class with each value of its attributes"):
        read(tmp_path / "t.csv", attribute=["ward"])
