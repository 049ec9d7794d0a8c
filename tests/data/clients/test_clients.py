import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.own.schema import Schema
from holdfast.errors import DataError, HoldfastError


def part(counts: list[int], seed: int, dtype: torch.dtype = torch.float32) -> ClientPart:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, 200, (sum(counts), 2, 3), generator=generator).to(dtype)
    return ClientPart.of_counts(inputs, torch.arange(sum(counts)) % 3, torch.tensor(counts))


def toy(dtype: torch.dtype = torch.float32) -> Clients:
    return Clients(
        part([4, 1, 2], 0, dtype), part([0, 0, 0], 1, dtype), part([1, 3, 0], 2, dtype), 3, names=("a", "b", "c")
    )


def test_counts_become_offsets_and_each_client_owns_its_rows() -> None:
    train = toy().train
    assert train.offsets.tolist() == [0, 4, 5, 7]
    assert train.counts.tolist() == [4, 1, 2]
    assert train.owners().tolist() == [0, 0, 0, 0, 1, 2, 2]
    inputs, labels = train.of(2)
    assert torch.equal(inputs, train.inputs[5:]) and labels.tolist() == [2, 0]


@pytest.mark.parametrize("offsets", [[], [0, 1], [1, 4], [0, 3, 2, 4], [0, 5]])
def test_offsets_that_do_not_cover_the_rows_are_refused(offsets) -> None:
    with pytest.raises(DataError, match="rise from 0 to the number of examples, 4"):
        ClientPart(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), torch.tensor(offsets, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int16, torch.float64])
def test_what_was_saved_comes_back_even_empty_parts(tmp_path: Path, dtype) -> None:
    clients = toy(dtype)
    clients.save(tmp_path / "deep" / "saved")
    again = Clients.open(tmp_path / "deep" / "saved")
    for name in ("train", "validation", "test"):
        for what in ("inputs", "labels", "offsets"):
            one, other = getattr(getattr(clients, name), what), getattr(getattr(again, name), what)
            assert one.dtype == other.dtype and torch.equal(one, other)
    assert (again.classes, again.task, again.names) == (3, "classes", ("a", "b", "c"))
    assert again.fingerprint() == clients.fingerprint()
    assert [path.name for path in tmp_path.rglob(".*")] == []


def test_how_own_data_were_read_is_saved_with_the_names_of_classes(tmp_path: Path) -> None:
    schema = Schema("array", ("x",), "outcome", ("healthy", "ill", "dead"), shape=(2, 3))
    replace(toy(), schema=schema).save(tmp_path / "saved")
    assert Clients.open(tmp_path / "saved").schema == schema
    assert Clients.open(tmp_path / "saved").class_names == schema.classes
    header = json.loads((tmp_path / "saved" / "header.json").read_text())
    (tmp_path / "saved" / "header.json").write_text(json.dumps({**header, "schema": {"kind": "array"}}))
    with pytest.raises(HoldfastError, match="isn't the schema"):
        Clients.open(tmp_path / "saved")


def test_examples_elsewhere_and_groups_are_saved_too_and_change_the_fingerprint(tmp_path: Path) -> None:
    plain = toy()
    groups = torch.arange(len(plain.train.labels)) % 2
    elsewhere = replace(plain.test, inputs=plain.test.inputs + 1)
    clients = replace(plain, elsewhere=elsewhere, train=replace(plain.train, groups=groups))
    clients.save(tmp_path / "saved")
    again = Clients.open(tmp_path / "saved")
    assert again.elsewhere is not None and again.train.groups is not None
    assert torch.equal(again.train.groups, groups) and again.test.groups is None
    assert torch.equal(again.elsewhere.inputs, plain.test.inputs + 1)
    assert again.fingerprint() == clients.fingerprint() != plain.fingerprint()
    with pytest.raises(DataError, match="the same clients"):
        replace(
            plain, elsewhere=ClientPart.of_counts(plain.test.inputs[:0], plain.test.labels[:0], torch.zeros(2).long())
        )


def test_opened_inputs_are_mapped_and_writing_into_them_leaves_the_file_alone(tmp_path: Path) -> None:
    toy().save(tmp_path / "saved")
    again = Clients.open(tmp_path / "saved")
    again.train.inputs[0] = -5.0
    other = Clients.open(tmp_path / "saved")
    assert torch.equal(other.train.inputs, toy().train.inputs)
    path = tmp_path / "saved" / "train-inputs.npy"
    with path.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(np.float32(77).tobytes())
    assert other.train.inputs[-1, -1, -1] == 77, "the tensor is a window on the file"


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    toy().save(tmp_path / "saved")
    with pytest.raises(DataError, match="is there already; choose another folder"):
        toy().save(tmp_path / "saved")


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be saved"):
        toy(torch.bfloat16).save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def truncate(folder: Path) -> None:
    path = folder / "test-inputs.npy"
    path.write_bytes(path.read_bytes()[:-3])


def exchange(folder: Path) -> None:
    (folder / "test-inputs.npy").write_bytes((folder / "test-labels.npy").read_bytes())


def put_pickle(folder: Path) -> None:
    np.save(folder / "test-inputs.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def put_foreign(folder: Path) -> None:
    (folder / "test-inputs.npy").write_bytes(pickle.dumps([1, 2]))


def change_header(**changes: object):
    def change(folder: Path) -> None:
        path = folder / "header.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"test-inputs.npy is truncated or no plain array .* save the clients again"),
        (put_foreign, "test-inputs.npy is truncated or no plain array"),
        (put_pickle, "test-inputs.npy is truncated or no plain array"),
        (exchange, r"test-inputs.npy holds int64 of shape \(4,\) and the header says"),
        (lambda folder: (folder / "train-labels.npy").unlink(), "train-labels.npy is missing"),
        (lambda folder: (folder / "header.json").unlink(), "isn't a folder of saved clients"),
        (lambda folder: (folder / "header.json").write_text("{"), "header.json is damaged"),
        (change_header(format="other"), "wasn't written by Clients.save"),
        (change_header(version=2), "has version 2 and we read 1"),
        (change_header(tensors={"../x": {}}), "doesn't list its tensors by name"),
        (change_header(task="rank"), "has the task 'rank'"),
        (change_header(classes="many"), "lacks or garbles"),
    ],
)
def test_a_damaged_or_foreign_folder_is_refused_with_a_sentence(tmp_path: Path, damage, message) -> None:
    toy().save(tmp_path / "saved")
    damage(tmp_path / "saved")
    with pytest.raises(DataError, match=message):
        Clients.open(tmp_path / "saved")


def test_the_fingerprint_sees_sizes_labels_inputs_and_task() -> None:
    base, test = toy(), part([1, 3, 0], 2)
    marks = {base.fingerprint(), toy().fingerprint()}
    assert len(marks) == 1
    moved = ClientPart(base.train.inputs, base.train.labels, torch.tensor([0, 3, 5, 7]))
    relabelled = ClientPart(base.train.inputs, base.train.labels.flip(0), base.train.offsets)
    shifted = ClientPart(base.train.inputs + 1, base.train.labels, base.train.offsets)
    for train in (moved, relabelled, shifted):
        marks.add(Clients(train, base.validation, test, 3).fingerprint())
    marks.add(Clients(base.train, base.validation, test, 3, task="margin").fingerprint())
    assert len(marks) == 5


def test_the_summary_counts_examples_and_classes_by_client() -> None:
    summary = toy().summary()
    assert summary.clients == 3
    assert (summary.train.total, summary.train.median, summary.train.smallest, summary.train.largest) == (7, 2, 1, 4)
    assert summary.train.mean == pytest.approx(7 / 3)
    assert summary.validation.total == 0
    assert (summary.classes_per_client.smallest, summary.classes_per_client.largest) == (1, 3)


def test_a_client_without_training_data_or_with_a_foreign_label_is_named() -> None:
    empty = Clients(part([2, 0, 0], 0), part([0, 0, 0], 1), part([1, 1, 1], 2), 3, names=("a", "b", "c"))
    with pytest.raises(DataError, match=r"client 1 \(b\) has no training examples, one of 2 such clients"):
        empty.check()
    foreign = Clients(part([3, 3], 0), part([0, 0], 1), part([1, 4], 2), 3)
    foreign.test.labels[3] = 7
    with pytest.raises(DataError, match="client 1 has label 7 in its test data; labels go from 0 to 2"):
        foreign.check()
    assert toy().check().classes == 3
