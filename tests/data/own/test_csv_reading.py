"""The quick way to read a csv file (threads, blocks, words kept once) against the plain one."""

import csv
import io
import random
from datetime import date, timedelta
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.own import columns, csv_columns, csv_pieces, features, reading, tables
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.reading import read_rows
from holdfast.errors import DataError

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]


def plainly(path, sample):
    """One thread, one block, every cell on its own."""
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=1 << 24),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=NULLS
        ),
    )


def one_after_another(work, items):
    return [work(item) for item in items]


WORDS = ["a", "b", " a", "Zürich", "日本", 'say "x"', "x,y", "two\nlines", "true", "007", "é"]
CELLS = {
    "words": lambda rng: rng.choice(WORDS),
    "few words": lambda rng: rng.choice(["red", "green"]),
    "whole numbers": lambda rng: str(rng.randint(-5, 5)),
    "numbers that float32 can't hold": lambda rng: str(rng.randint(2**24, 2**62)),
    "numbers that float64 can't hold": lambda rng: str(rng.randint(2**62, 2**70)),
    "fractions": lambda rng: repr(rng.uniform(-1e30, 1e30)),
    "short fractions": lambda rng: str(rng.randint(-99, 99) / 10),
    "numbers and what is none": lambda rng: rng.choice(["-nan", "0.5", "-0.25", "7"]),
    "truth values": lambda rng: rng.choice(["true", "false"]),
    "dates": lambda rng: str(date(1970, 1, 1) + timedelta(rng.randint(0, 20_000))),
    "missing": lambda rng: rng.choice(NULLS),
}


def csv_file(seed):
    """Columns of a few kinds, which may change their kind half way and have gaps, beside numbers, labels and ids."""
    rng = random.Random(seed)
    n = rng.randint(30, 200)
    large = rng.random() < 0.3
    columns = [("label", [str(2**53 - rng.randint(0, 2)) if large else rng.choice(["yes", "no"]) for _ in range(n)])]
    columns += [("id", [str(2**60 + row) for row in range(n)]), ("n", [str(rng.gauss(0, 1)) for _ in range(n)])]
    names = rng.sample(["x", "y 1", "ü", "sex", "z", "w"], rng.randint(1, 5))
    if rng.random() < 0.05:
        names.append(names[0])
    for name in names:
        kinds = [rng.choice(sorted(CELLS))] * 2
        if rng.random() < 0.4:
            kinds[1] = rng.choice(sorted(CELLS))
        gaps = rng.choice([0, 0, 0.1])
        cells = [CELLS["missing" if rng.random() < gaps else kinds[2 * row >= n]](rng) for row in range(n)]
        columns.append((name, cells))
    text = io.StringIO()
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(text, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
    writer.writerow([name for name, _ in columns])
    writer.writerows(zip(*(cells for _, cells in columns), strict=True))
    return text.getvalue().encode()


def told(path, options):
    """Everything that reading gives, or its sentence."""
    try:
        rows = read_rows(str(path), options)
    except DataError as error:
        return str(error)
    inputs = rows.examples.inputs.gather(torch.arange(len(rows.examples)))
    parts = [inputs, rows.examples.labels, rows.examples.groups, rows.examples.sources, torch.from_numpy(rows.parts)]
    values = [None if part is None else part.numpy().tobytes() for part in parts if not isinstance(part, dict)]
    names = None if rows.examples.names is None else rows.examples.names.tolist()
    return rows.schema.to_json(), rows.notes, names, values


@given(st.integers(0, 2**32), st.sampled_from([512, 1024, 4096]), st.sampled_from(["table", "words", "client", "id"]))
@settings(max_examples=60, deadline=None)
def test_the_quick_and_the_plain_way_give_the_same_examples_schema_and_sentences(tmp_path_factory, seed, block, ask):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(csv_file(seed))
    options = {
        "table": ReadingOptions(attribute=("none",)),
        "words": ReadingOptions(),
        "client": ReadingOptions(client="id"),
        "id": ReadingOptions(id="id"),
    }[ask]
    with (
        mock.patch.object(tables, "_BLOCK_BYTES", block),
        mock.patch.multiple(csv_pieces, _FIRST_BYTES=block // 2, _PIECE_BYTES=block, _WORTH_CODE=0),
        mock.patch.object(csv_columns, "_MOST_WORDS", 5),
        mock.patch.object(features, "_BLOCK", 7),
    ):
        quick = told(path, options)
    with (
        mock.patch.dict(tables.READERS, {".csv": plainly}),
        mock.patch.object(columns, "in_threads", one_after_another),
        mock.patch.object(features, "in_threads", one_after_another),
        mock.patch.object(reading, "in_threads", one_after_another),
    ):
        assert quick == told(path, options)


def test_a_cell_that_is_longer_than_a_block_is_read(tmp_path):
    rows = "".join(f'"{"x" * 3_500_000 if row == 40 else "short"} {row}",{"ab"[row % 2]}\n' for row in range(80))
    (tmp_path / "t.csv").write_text("text,label\n" + rows)
    table = tables.read_table(tmp_path / "t.csv")
    assert table.num_rows == 80 and len(table["text"][40].as_py()) == 3_500_003


@pytest.mark.parametrize("repeats", [True, False])
def test_a_text_that_is_not_utf8_is_told_wherever_it_stands(tmp_path, repeats):
    rows = [f"{row % 3 if repeats else row} a plain text,{'ab'[row % 2]}\n".encode() for row in range(80_000)]
    rows[-5] = "Zürich,a\n".encode("latin-1")
    (tmp_path / "t.csv").write_bytes(b"text,label\n" + b"".join(rows))
    assert (tmp_path / "t.csv").stat().st_size > 1 << 20
    with pytest.raises(DataError, match="UTF-8"):
        tables.read_table(tmp_path / "t.csv")


def test_numbers_keep_their_bits_until_they_are_scaled(tmp_path):
    """Whole numbers beyond float32 stay apart as ids, labels and clients, and times a second apart as inputs."""
    n, first = 30, 2**53 + 1
    lines = [f"{first + row},{2**24 + row % 2},{2**40 + row % 3},{1.7e9 + row}" for row in range(n)]
    (tmp_path / "t.csv").write_text("id,label,ward,when\n" + "\n".join(lines) + "\n")
    rows = read_rows(str(tmp_path / "t.csv"), ReadingOptions(client="ward", features=("when",)))
    assert rows.examples.names.tolist() == [str(first + row) for row in range(n)]
    assert rows.schema.classes == (str(2**24), str(2**24 + 1))
    assert set(rows.examples.source_names) == {str(2**40 + ward) for ward in range(3)}
    scaled = rows.examples.inputs.gather(torch.arange(n)).numpy()[:, 0]
    times = 1.7e9 + np.arange(n)
    training = times[rows.parts == 0]
    assert np.allclose(scaled, (times - training.mean()) / training.std(), atol=1e-6)
    assert pa.types.is_integer(tables.read_table(tmp_path / "t.csv")["id"].type)


def test_pieces_with_more_rows_than_the_first_lets_expect_and_gaps_far_behind_are_read_whole(tmp_path):
    """Long lines first, so that the columns have to grow; the last number of all is missing."""
    n = 4_000
    rows = [f"{row}.5,{row},{'long' * 20 if row < 40 else 's'}" for row in range(n - 1)] + [f",{n - 1},s"]
    (tmp_path / "t.csv").write_text("x,n,w\n" + "\n".join(rows) + "\n")
    with mock.patch.multiple(csv_pieces, _FIRST_BYTES=2_000, _PIECE_BYTES=4_000, _WORTH_CODE=0):
        table = tables.read_table(tmp_path / "t.csv")
    assert table["x"].to_pylist() == [row + 0.5 for row in range(n - 1)] + [None]
    assert table["n"].to_pylist() == list(range(n)) and table["x"].num_chunks == table["n"].num_chunks == 1
