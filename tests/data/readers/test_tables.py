from pathlib import Path

import pytest

from holdfast.data.readers.tables import read_columns
from holdfast.errors import DataError


def test_quoted_line_breaks_commas_and_empty_cells_survive(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeff,text,n\n0,"two\nlines, and ""quotes""",1\n1,,NA\n', encoding="utf-8")
    table = read_columns(path, ("text", "n"))
    assert table["text"].tolist() == ['two\nlines, and "quotes"', ""]
    assert table["n"].tolist() == ["1", "NA"]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n1,2,3\n")
    assert {name: values.tolist() for name, values in read_columns(path, ("c", "a")).items()} == {
        "c": ["3"],
        "a": ["1"],
    }


def test_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00a,b\n")
    with pytest.raises(DataError, match="can't be read as csv"):
        read_columns(tmp_path / "a.csv", ("a",))
