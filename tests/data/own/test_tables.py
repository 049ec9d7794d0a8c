import gzip
import io

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from holdfast.data.own.tables import part_of_name, read_table, read_tables, suffix_of
from holdfast.errors import DataError

PLAIN = "a,b,label\n1,x,yes\n2,y,no\n"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", "|"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("x", '"x"'),
        "\n\n" + PLAIN,
    ],
    ids=["plain", "BOM", "semicolon", "tab", "bar", "windows", "old mac", "quotes", "empty lines first"],
)
def test_the_same_table_is_read_however_it_is_separated(tmp_path, content):
    table = read_table(write(tmp_path / "t.csv", content))
    assert table.column_names == ["a", "b", "label"]
    assert [list(map(str, row)) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)] == [
        ["1", "x", "yes"],
        ["2", "y", "no"],
    ]


def test_a_compressed_table_and_its_sample_are_read(tmp_path):
    path = write(tmp_path / "t.csv.gz", gzip.compress(PLAIN.encode()))
    assert suffix_of(path) == ".csv.gz"
    assert read_table(path).num_rows == read_table(path, sample=True).num_rows == 2


def test_lines_within_quotes_are_read_wherever_they_begin(tmp_path):
    """Quotes that come after the part that is looked at first, too."""
    rows = 60_000
    frame = pd.DataFrame({"note": ["a plain note of some length"] * rows, "label": ["x", "y"] * (rows // 2)})
    frame.loc[rows - 1, "note"] = 'two\nlines, and a "quote"'
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert (tmp_path / "t.csv").stat().st_size > 1 << 20
    table = read_table(tmp_path / "t.csv")
    assert table.num_rows == rows and table["note"][rows - 1].as_py() == 'two\nlines, and a "quote"'


def test_words_that_say_missing_are_missing_and_quoted_ones_are_words(tmp_path):
    table = read_table(write(tmp_path / "t.csv", 'a,b\n1,NA\n?,"NA"\n3,none\n'))
    assert table["a"].to_pylist() == [1, None, 3]
    assert table["b"].to_pylist() == [None, "NA", "none"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no columns|[Ee]mpty"),
        ("\n\n", "no columns|[Ee]mpty"),
        ("a,b\n", "no rows"),
        ("a,a\n1,2\n", "several columns named 'a'"),
        ("a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        (b"a,b\n1,\0\n", "NUL bytes"),
        ("a,b\n1,ü\n".encode("latin-1"), "isn't text in UTF-8 .byte 0xfc at 6.; save it again in UTF-8"),
        (PLAIN.encode("utf-16"), "UTF-8|NUL"),
    ],
)
def test_a_broken_csv_is_a_sentence(tmp_path, content, says):
    with pytest.raises(DataError, match=says) as raised:
        read_table(write(tmp_path / "t.csv", content))
    assert "t.csv" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "jsonl", "csv.gz"])
def test_random_bytes_under_any_suffix_are_a_sentence(tmp_path, suffix):
    with pytest.raises(DataError, match=f"t.{suffix}"):
        read_table(write(tmp_path / f"t.{suffix}", bytes(range(7, 90))))


def arrow_bytes(table, new):
    stream = io.BytesIO()
    with new(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def test_the_forms_of_an_arrow_file_are_told_by_their_content(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    write(tmp_path / "file.arrow", arrow_bytes(table, pa.ipc.new_file))
    write(tmp_path / "stream.arrow", arrow_bytes(table, pa.ipc.new_stream))
    pa.feather.write_feather(table, tmp_path / "t.feather")
    for name in ("file.arrow", "stream.arrow", "t.feather"):
        assert read_table(tmp_path / name).equals(table), name


def test_an_arrow_file_whose_offsets_leave_the_memory_is_refused(tmp_path):
    """Arrow itself follows them, and the process dies."""
    offsets = pa.array([0, 2_000_000_000, 2], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    table = pa.table({"word": bad, "label": ["a", "b"]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match=r"t\.arrow"):
        read_table(tmp_path / "t.arrow")


def test_parquet_of_any_width_of_strings_and_lists_has_the_usual_types(tmp_path):
    table = pa.table(
        {
            "large": pa.array(["a", "b"], pa.large_string()),
            "dictionary": pa.array(["a", "b"]).dictionary_encode(),
            "numbers": pa.array([1, 2]).dictionary_encode(),
            "lists": pa.array([["a"], []], pa.large_list(pa.large_string())),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
            "half": pa.array([1.0, 2.0], pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    kinds = {field.name: field.type for field in read_table(tmp_path / "t.parquet").schema}
    assert kinds["large"] == pa.string() and kinds["lists"] == pa.list_(pa.string())
    assert kinds["fixed"] == pa.list_(pa.int64()) and kinds["half"] == pa.float32()
    assert pa.types.is_integer(kinds["numbers"])
    assert kinds["dictionary"] in (pa.string(), pa.dictionary(pa.int32(), pa.string()))


def test_lines_of_json_with_varying_keys_have_missing_values(tmp_path):
    table = read_table(write(tmp_path / "t.jsonl", '{"a": 1, "b": "x"}\n{"b": "y"}\n{"a": 3, "c": true}\n'))
    assert table["a"].to_pylist() == [1, None, 3] and table["c"].to_pylist() == [None, None, True]
    with pytest.raises(DataError, match="UTF8"):
        read_table(write(tmp_path / "t.jsonl", b'{"a": "\xff"}\n{"a": "x"}\n'))


def test_a_sample_has_the_first_rows_only(tmp_path):
    pq.write_table(pa.table({"a": range(5_000)}), tmp_path / "t.parquet")
    write(tmp_path / "t.csv", "a\n" + "\n".join(map(str, range(5_000))))
    for name in ("t.parquet", "t.csv"):
        assert read_table(tmp_path / name, sample=True)["a"].to_pylist() == list(range(2_000))


def test_files_named_after_parts_are_these_parts(tmp_path):
    paths = [write(tmp_path / name, PLAIN) for name in ("test.csv", "train-00000-of-00001.csv", "val.csv")]
    assert read_tables(paths, "here").parts.tolist() == [2, 2, 0, 0, 1, 1]
    assert read_tables([write(tmp_path / "x.csv", PLAIN)], "here").parts is None
    assert part_of_name(tmp_path / "2.csv") == -1 and part_of_name(tmp_path / "DEV_1.csv") == 1


def test_files_of_other_columns_or_types_are_no_one_table(tmp_path):
    first = write(tmp_path / "a.csv", PLAIN)
    with pytest.raises(DataError, match=r"b\.csv and .*a\.csv don't have the same columns \('b', 'c'\)"):
        read_tables([first, write(tmp_path / "b.csv", PLAIN.replace("b", "c", 1))], "here")
    pq.write_table(pa.table({"a": [[1]], "b": ["x"], "label": ["y"]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="don't make one table"):
        read_tables([first, tmp_path / "c.parquet"], "here")
