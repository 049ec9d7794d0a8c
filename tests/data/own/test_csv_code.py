"""Numbers and words by machine code, against Python's own reading of numbers and Arrow's of everything."""

import random
import struct
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.own import csv_cells, csv_code, csv_columns, csv_pieces, tables
from holdfast.data.own.csv_code import FLOATS, OTHERS, PADDING, WHOLES, WORDS, read_lines
from holdfast.machine_code import compiled, is_of, loaded


def lines_of(text: bytes, kinds, *, room=None, separator=",", point="."):
    padded = np.frombuffer(text + b"\n" * PADDING, np.uint8)
    return read_lines(padded, kinds, room=room or text.count(b"\n") + 1, separator=separator, point=point)


def bits(number: float) -> bytes:
    return struct.pack("<d", number)


def left(lines, column):
    cells, rows = lines.left(column)
    return cells.split(b"\n")[:-1], rows.tolist()


def test_the_code_is_made_of_the_loop_as_it_stands_in_the_source():
    assert is_of(csv_code._LLVM, csv_code._LLVM.with_name("csv_cells.py")), "run python -m holdfast.data.own.csv_cells"


def test_both_sides_of_the_code_name_kinds_and_sizes_alike():
    assert (FLOATS, WHOLES, WORDS, OTHERS) == (csv_cells.FLOATS, csv_cells.WHOLES, csv_cells.WORDS, csv_cells.OTHERS)
    assert csv_code._SLOTS == csv_cells.SLOTS and csv_code._MOST_WORDS == csv_cells.MOST_WORDS
    assert csv_code._LARGEST_POWER == csv_cells.LARGEST_POWER
    assert csv_code._LARGEST_EXACT_POWER == csv_cells._EXACT_POWER


def numbers_as_written() -> st.SearchStrategy[str]:
    """Of any length and size, as programs and people write them; halves between two float64 among them."""
    written = st.floats(allow_nan=False, allow_infinity=False).map(repr)
    between = st.tuples(st.integers(2**52, 2**53 - 1), st.integers(-60, 11)).map(
        lambda x: f"{(2 * x[0] + 1) * 10**0}e{x[1]}"
    )
    digits = st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][-+]?[0-9]{1,3})?", fullmatch=True)
    rounded = st.tuples(st.floats(-1e9, 1e9), st.integers(0, 17)).map(lambda x: f"{x[0]:.{x[1]}f}")
    return st.one_of(written, between, digits, rounded)


@given(st.lists(numbers_as_written(), min_size=1, max_size=50))
@settings(max_examples=300, deadline=None)
def test_a_number_that_is_read_has_the_bits_that_python_gives_it(cells):
    lines = lines_of(("\n".join(cells) + "\n").encode(), [FLOATS])
    _, rows = left(lines, 0)
    for row in set(range(len(cells))) - set(rows):
        assert bits(lines.numbers(0, np.float64)[row]) == bits(float(cells[row])), cells[row]


def test_few_long_decimals_are_left_to_arrow():
    draw = random.Random(0)
    cells = [repr(draw.gauss(0, 10 ** draw.randint(-30, 30))) for _ in range(20_000)]
    lines = lines_of(("\n".join(cells) + "\n").encode(), [FLOATS])
    _, rows = left(lines, 0)
    assert len(rows) < 100
    read = sorted(set(range(len(cells))) - set(rows))
    assert lines.numbers(0, np.float64)[read].tolist() == [float(cells[row]) for row in read]


@pytest.mark.parametrize(
    "cell",
    ["", " 1", "1 ", "+1", ".5", "5.", "1.5.2", "1e", "1e+", "--1", "-", "nan", "inf", "0x10", '"1"', "1_000", "1" * 20,
     "1e400", "1e-400", "2.2250738585072011e-308", "4.9e-324", "123456789012345678901", "1'000", "NA"],
)  # fmt: skip
def test_what_is_no_plain_decimal_is_left(cell):
    lines = lines_of(f"1.5,1\n{cell},1\n2.5,1\n".encode(), [FLOATS, WHOLES])
    assert left(lines, 0) == ([cell.encode()], [1]) and lines.numbers(0, np.float64)[[0, 2]].tolist() == [1.5, 2.5]
    lines = lines_of(f"1,1\n{cell},1\n-2,1\n".encode(), [WHOLES, WHOLES])
    assert left(lines, 0) == ([cell.encode()], [1]) and lines.numbers(0, np.int64)[[0, 2]].tolist() == [1, -2]


def test_words_are_numbered_as_they_are_written():
    words = [b"a", b"", b'"a"', b'"a, ""b"" and\rc"', b"x" * 7, b"x" * 8, b"x" * 9, b"x" * 8 + b"y", "Zürich".encode()]
    draw = random.Random(1)
    cells = words + draw.choices(words, k=500)
    lines = lines_of(b"".join(b"%s;0\r\n" % cell for cell in cells), [WORDS, WHOLES], separator=";")
    distinct, rows = left(lines, 0)
    assert distinct == words and rows == list(range(len(words)))
    assert [distinct[code] for code in lines.codes(0)] == cells


def test_decimals_may_have_a_comma():
    lines = lines_of(b"0,5;1.5\n-1,25;2\n", [FLOATS, FLOATS], separator=";", point=",")
    assert lines.numbers(0, np.float64).tolist() == [0.5, -1.25]
    assert left(lines, 1) == ([b"1.5"], [0])


@pytest.mark.parametrize(
    "text",
    [b"1,2\n1\n", b"1,2\n1,2,3\n", b"1,2\n\n", b'1,"2\n', b'1,"2"x\n', b"1,2\r3,4\n", b"\n1,2\n", b'1,"'],
)
def test_lines_that_are_not_alike_are_refused(text):
    assert lines_of(text, [FLOATS, OTHERS]) is None


def test_more_rows_than_expected_are_counted_and_more_words_than_the_table_holds_refused():
    text = b"".join(b"%d\n" % row for row in range(2_100))
    assert lines_of(text, [WHOLES], room=3).rows == 2_100
    assert lines_of(text, [WORDS]) is None
    assert lines_of(text[: text.index(b"2048")], [WORDS]).counts.tolist() == [2_048]


def test_a_return_before_the_line_end_is_no_part_of_a_cell():
    lines = lines_of(b"a,1\r\nb,2\r\n", [OTHERS, FLOATS])
    assert left(lines, 0)[0] == [b"a", b"b"] and lines.numbers(1, np.float64).tolist() == [1, 2]
    lines = lines_of(b"1,a\r\n2,\r\n", [FLOATS, WORDS])
    assert left(lines, 1)[0] == [b"a", b""]


def test_a_last_line_without_an_end_is_read():
    lines = lines_of(b"1,a\n2,b", [FLOATS, OTHERS])
    assert lines.numbers(0, np.float64).tolist() == [1, 2] and left(lines, 1) == ([b"a", b"b"], [0, 1])


def test_no_byte_outside_of_the_text_is_touched():
    """Random bytes of all that means something, at the end of a page that is not there."""
    draw = random.Random(2)
    for _ in range(3_000):
        text = bytes(draw.choices(b'01.,-e"\n\ra ', k=draw.randint(1, 60)))
        lines = lines_of(text, [FLOATS, WORDS, WHOLES, OTHERS][: draw.randint(1, 4)])
        if lines is not None:
            assert all(0 <= count <= lines.rows for count in lines.counts)
            for column, count in enumerate(lines.counts):
                ends = lines.starts[column, :count] + lines.lengths[column, :count]
                assert (ends <= len(text)).all()


def table_of(path, **changes):
    with mock.patch.multiple(csv_pieces, _FIRST_BYTES=4_000, _PIECE_BYTES=16_000, _WORTH_CODE=0, **changes):
        return tables.read_table(path)


def arrows_own(path):
    plainly = {"read_options": pa_csv.ReadOptions(use_threads=False, block_size=1 << 28)}
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    return pa_csv.read_csv(path, parse_options=parsing, convert_options=tables._converting(".", {}), **plainly)


def test_a_table_of_all_kinds_is_what_arrow_reads(tmp_path):
    draw = random.Random(3)
    columns = {
        "short": lambda: f"{draw.gauss(0, 1):.3f}",
        "long": lambda: repr(draw.gauss(0, 1)),
        "gaps": lambda: draw.choice(["", "NA", "1.5", "-2", " 7", '"3.5"', "1e3", "inf", "-0.0"]),
        "whole": lambda: draw.choice(["1", "-20", "", "9007199254740993", "007"]),
        "word": lambda: draw.choice(["a", '"b, c"', '"d ""e"""', "?", "", '""', '"NA"', "NA", '"a"', "f" * 30]),
        "prose": lambda: f'"{draw.random()}, said ""he"""',
        "date": lambda: f"2026-0{draw.randint(1, 9)}-1{draw.randint(0, 9)}",
        "truth": lambda: draw.choice(["true", "false", ""]),
    }
    rows = [",".join(columns) + "\n", *(",".join(made() for made in columns.values()) + "\n" for _ in range(4_000))]
    (tmp_path / "t.csv").write_text("".join(rows))
    with mock.patch.object(csv_pieces, "_parsed", side_effect=csv_pieces._parsed) as parsed:
        table = table_of(tmp_path / "t.csv")
    # The first piece, and no other.
    assert parsed.call_count == 1, "pieces were left to Arrow"
    expected = arrows_own(tmp_path / "t.csv")
    for name in expected.column_names:
        column = table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
        assert column.combine_chunks().equals(expected[name].combine_chunks()), name


def test_without_the_code_arrow_reads_the_pieces(tmp_path):
    (tmp_path / "t.csv").write_text("x,w\n" + "".join(f"{row}.5,w{row % 3}\n" for row in range(5_000)))
    with mock.patch.object(csv_pieces, "code", lambda: None):
        without = table_of(tmp_path / "t.csv")
    assert without.equals(table_of(tmp_path / "t.csv")) and without["x"][4_999].as_py() == 4_999.5


def test_a_piece_with_many_words_is_arrows_and_the_others_are_not(tmp_path):
    rows = [f"{row},{'ab'[row % 2]}" for row in range(2_000)]
    rows += [f"{row},word {row}" for row in range(2_000, 6_000)] + [f"{row},b" for row in range(6_000, 8_000)]
    (tmp_path / "t.csv").write_text("x,w\n" + "\n".join(rows) + "\n")
    with mock.patch.object(csv_pieces, "_PIECE_BYTES", 60_000):
        table = table_of(tmp_path / "t.csv", **{"_MOST_EXPECTED": 100})
    assert [f"{x},{w}" for x, w in zip(table["x"].to_pylist(), table["w"].to_pylist(), strict=True)] == rows


def test_a_text_that_llvm_does_not_understand_is_no_code(tmp_path):
    (tmp_path / "other.ll").write_text("define i32 @f(ptr %new) { syntax of another time }")
    assert loaded(tmp_path / "other.ll", {}) is None


def test_a_loop_is_compiled_and_runs(tmp_path):
    from ctypes import c_int64

    from numba import types

    def twice(number):
        return 2 * number

    (tmp_path / "source.py").write_text("now")
    (tmp_path / "twice.ll").write_text(compiled(tmp_path / "source.py", {twice: types.int64(types.int64)}))
    assert is_of(tmp_path / "twice.ll", tmp_path / "source.py")
    code = loaded(tmp_path / "twice.ll", {"twice": (c_int64,)})
    assert code is not None and code["twice"](21) == 42
    (tmp_path / "source.py").write_text("then")
    assert not is_of(tmp_path / "twice.ll", tmp_path / "source.py")


def test_a_column_that_starts_without_the_word_of_later_pieces_keeps_them_apart():
    parse = csv_columns.parse_cells
    kind, parsing = pa.string(), pa_csv.ParseOptions()
    values = parse(b'a\n"a"\nNA\n\n""\n', kind, parsing, lambda types: tables._converting(".", types))
    assert values.to_pylist() == ["a", "a", None, None, ""]
