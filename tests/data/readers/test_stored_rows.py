"""Rows on disk give what rows in memory give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.data.readers import stored_rows
from holdfast.data.readers.instructions import read_instructions
from holdfast.errors import DataError
from tests.finetuning.small import instructions

ROWS = [dict(row) for row in instructions(30).rows]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "_BATCH", 7)


def written(folder: Path, suffix: str) -> Path:
    file = folder / f"train{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        file.write_text("\n\n".join(json.dumps(row) for row in ROWS) + "\n")
    return file


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_on_disk_are_the_rows_in_memory(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path, suffix)
    memory, disk = read_instructions(file), read_instructions(file, store=tmp_path / "store")
    assert tuple(disk.chats) == memory.chats
    assert [disk.chats[place] for place in (0, 29, 13)] == [memory.chats[place] for place in (0, 29, 13)]
    assert disk.fingerprint == memory.fingerprint
    assert disk.source_names == memory.source_names
    assert np.array_equal(disk.sources, memory.sources)
    some = np.array([3, 4, 21])
    assert tuple(disk.part(some).chats) == memory.part(some).chats
    if suffix == ".jsonl":
        assert disk.part(some).encoded(suffix) == memory.part(some).encoded(suffix)
    else:
        (tmp_path / "part.parquet").write_bytes(disk.part(some).encoded(suffix))
        assert pq.read_table(tmp_path / "part.parquet").to_pylist() == [ROWS[place] for place in some]


def test_bad_rows_are_named_by_their_lines_and_passed_over_on_request(tmp_path: Path) -> None:
    file = written(tmp_path, ".jsonl")
    lines = file.read_text().split("\n")
    lines[40], lines[50] = '{"instruction": "half', '{"instruction": null, "output": "x"}'
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"line 41 of .* isn't JSON"):
        read_instructions(file, store=tmp_path / "store")
    memory = read_instructions(file, skip_bad=True)
    disk = read_instructions(file, skip_bad=True, store=tmp_path / "again")
    assert disk.skipped == memory.skipped
    assert len(disk) == len(memory) == 28
    assert disk.fingerprint == memory.fingerprint


def test_a_list_in_json_has_no_rows_to_leave_on_disk(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(ROWS))
    with pytest.raises(DataError, match=r"make it \.jsonl or \.parquet"):
        read_instructions(tmp_path / "train.json", store=tmp_path / "store")
