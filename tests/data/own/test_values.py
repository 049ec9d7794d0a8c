from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.own.values import (
    MISSING,
    attribute_of,
    classes_of,
    coded_values,
    cut,
    memberships_of,
    numbers_of,
    quantiles_of,
)
from holdfast.errors import DataError
from tests.data.own.wards import column


def named(coded):
    return [coded.names[code] for code in coded.codes]


@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        ([3, 1, 1, 3], pa.int64(), ("1", "3")),
        ([10, 9, 9], pa.uint8(), ("9", "10")),
        ([-1, 1, -1], pa.int8(), ("-1", "1")),
        ([2**64 - 1, 0], pa.uint64(), ("0", str(2**64 - 1))),
        ([True, False, True], pa.bool_(), ("false", "true")),
        (["b", "a", " b "], pa.string(), ("a", "b")),
        ([1.0, 0.0], pa.float64(), ("0", "1")),
        ([1.0, 0.0], pa.float32(), ("0", "1")),
        ([Decimal("1.00"), Decimal("2.00")], pa.decimal128(9, 2), ("1", "2")),
        (["x", "y", "x"], pa.dictionary(pa.int8(), pa.string()), ("x", "y")),
    ],
)
def test_classes_are_named_by_their_values_in_order(values, kind, names):
    coded = classes_of(column(values, kind), "y", "here")
    assert coded.names == names
    expected = [str(value).lower() if kind == pa.bool_() else str(value).strip() for value in values]
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        assert named(coded) == expected


@given(st.lists(st.text(max_size=4) | st.sampled_from(["a", "b"]), min_size=1), st.integers(1, 5))
def test_codes_of_words_are_those_of_pandas(words, pieces):
    """However the column is cut into chunks, and with dictionaries of their own."""
    cuts = np.array_split(np.array(words, object), pieces)
    plain = pa.chunked_array([pa.array(part.tolist(), pa.string()) for part in cuts])
    stripped = pd.Series([word.strip() for word in words])
    codes, names = pd.factorize(stripped, sort=False)
    for one in (plain, pa.chunked_array([chunk.dictionary_encode() for chunk in plain.chunks])):
        coded = coded_values(one)
        assert [coded.names[code] for code in coded.codes] == [names[code] for code in codes]
        assert set(coded.names) == set(stripped)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0.5, 1.0], "0.5 in row 1, which is a quantity and not a class: regression is not supported"),
        ([1.0, float("inf")], "inf in row 2"),
        ([1.0, float("nan")], "no label in column 'y' of 1 row .the first is row 2."),
        (["a", None, None], "of 2 rows .the first is row 2."),
        ([["a"], ["b", "c"]], "several labels per example"),
        ([{"x": 1}], "struct"),
        ([b"x", b"y"], "binary"),
        ([date(2026, 1, 1), date(2026, 1, 2)], "holds times"),
        (["a", "a"], "one value only, 'a'"),
        (list(range(100)), "100 different values in 100 rows, which looks like a quantity or a name"),
        ([Decimal("0.5"), Decimal("1")], "quantity"),
        ([2.0**60, 1.0], "quantity"),
    ],
)
def test_what_is_no_class_is_refused_with_what_is(values, says):
    with pytest.raises(DataError, match=says):
        classes_of(column(values), "y", "here")


def test_a_million_missing_labels_are_one_short_sentence():
    with pytest.raises(DataError, match="1,000,000 rows") as raised:
        classes_of(pa.chunked_array([pa.nulls(1_000_000, pa.string())]), "y", "here")
    assert len(str(raised.value)) < 200


def test_a_class_that_the_model_does_not_know_is_named_with_those_it_knows():
    assert classes_of(column(["b", "a"]), "y", "here", ("a", "b", "c")).codes.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"has the class 'd' in row 2 .*it knows a, b, c"):
        classes_of(column(["b", "d"]), "y", "here", ("a", "b", "c"))


def test_a_missing_attribute_is_a_value_of_its_own():
    assert named(attribute_of(column(["f", None, "m"]), "sex", "here")) == ["f", MISSING, "m"]
    assert named(attribute_of(column([1.0, float("nan"), 2.0]), "site", "here")) == ["1", MISSING, "2"]
    assert named(attribute_of(column([2, 10, None]), "site", "here")) == ["2", "10", MISSING]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0.5, 1.5], "holds fractions; cut it at its quantiles with --attribute age:4"),
        (list(range(65)), "65 different values"),
        ([date(2026, 1, 1)], "date32"),
        ([{"x": 1}], "struct"),
        ([b"x"], "binary"),
    ],
)
def test_what_makes_no_groups_is_refused(values, says):
    with pytest.raises(DataError, match=says):
        attribute_of(column(values), "age", "here")


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=4, max_size=80).filter(
        lambda v: len({x for x in v if not np.isnan(x)}) >= 4
    ),
    st.integers(2, 5),
)
def test_pieces_are_between_quantiles_and_missing_numbers_are_a_piece(numbers, pieces):
    values = np.array(numbers)
    edges, coded = quantiles_of(column(numbers), "age", "here", pieces)
    assert (np.diff(edges) > 0).all() and len(edges) <= pieces - 1
    for value, code in zip(numbers, coded.codes, strict=True):
        if np.isnan(value):
            assert coded.names[code] == MISSING
        else:
            assert code == sum(value >= edge for edge in edges)
    assert set(coded.codes[~np.isnan(values)].tolist()) == set(range(len(edges) + 1)), "a piece is empty"
    assert (cut(values, edges).codes == coded.codes).all()


def test_what_can_t_be_cut_is_refused():
    for values, pieces in (([1.0] * 9, 4), ([1.0, 2.0], 1), ([1.0, 2.0], 65), ([None, None], 2)):
        with pytest.raises(DataError, match="can't be cut"):
            quantiles_of(column(values, pa.float64()), "age", "here", pieces)
    with pytest.raises(DataError, match="not numbers"):
        quantiles_of(column(["a", "b"]), "age", "here", 2)


@given(st.lists(st.none() | st.lists(st.none() | st.sampled_from("abc"), max_size=4), min_size=1))
def test_memberships_are_those_of_a_loop(lists):
    if not any(value for row in lists if row for value in row):
        with pytest.raises(DataError, match="0 different values"):
            memberships_of(column(lists, pa.list_(pa.string())), "tags", "here")
        return
    members, names = memberships_of(column(lists, pa.list_(pa.string())), "tags", "here")
    assert members.tolist() == [[name in (row or []) for name in names] for row in lists]
    assert list(names) == sorted({value for row in lists if row for value in row if value})


def test_numbers_are_floats_and_times_are_seconds():
    assert numbers_of(column([True, None]), "x", "here")[0] == 1
    assert np.isnan(numbers_of(column([True, None]), "x", "here")[1])
    assert numbers_of(column([date(1970, 1, 2)]), "x", "here").tolist() == [86_400.0]
    assert numbers_of(column([2**64 - 1], pa.uint64()), "x", "here").tolist() == [float(2**64 - 1)]
    assert numbers_of(column([Decimal("1.25")]), "x", "here").tolist() == [1.25]
    with pytest.raises(DataError, match="holds string and not numbers"):
        numbers_of(column(["1"]), "x", "here")


def test_pieces_of_dates_are_named_by_dates():
    days = pa.chunked_array([pa.array([date(2020, 1, day) for day in range(1, 13)])])
    edges, coded = quantiles_of(days, "day", "x.csv", 3)
    assert coded.names == ("<2020-01-05", "2020-01-05..2020-01-09", ">=2020-01-09") and len(edges) == 2
    moments = pa.chunked_array([pa.array([60 * minute for minute in range(4)], pa.timestamp("s"))])
    assert quantiles_of(moments, "at", "x.csv", 2)[1].names == ("<1970-01-01 00:02:00", ">=1970-01-01 00:02:00")
    assert quantiles_of(pa.chunked_array([pa.array([1, 2])]), "n", "x.csv", 2)[1].names == ("<2", ">=2")
