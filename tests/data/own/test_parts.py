from collections import Counter
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.own.parts import by_client, completed, parts_by_column, parts_by_time, stratified
from holdfast.errors import DataError
from tests.data.own.wards import column

groups_of = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(lambda groups: np.array(groups, np.int64))
shares = st.tuples(st.floats(0.01, 0.45), st.floats(0.01, 0.45))


@given(groups_of, shares, st.integers(0, 2**40))
def test_every_row_is_in_one_part_and_every_group_is_in_the_parts_it_suffices_for(groups, shares, seed):
    parts = stratified(groups, shares, seed)
    assert set(parts.tolist()) <= {0, 1, 2}
    for group, size in Counter(groups.tolist()).items():
        here = Counter(parts[groups == group].tolist())
        assert set(here) == ({0, 1, 2} if size >= 3 else {0, 2} if size == 2 else {0})
        for part, share in ((1, shares[0]), (2, shares[1])):
            assert size < 3 or abs(here[part] - share * size) <= 1


@given(groups_of, st.integers(0, 2**40))
def test_a_split_is_its_seeds(groups, seed):
    assert (stratified(groups, (0.2, 0.2), seed) == stratified(groups, (0.2, 0.2), seed)).all()


def test_another_seed_is_another_split_and_rows_are_not_taken_in_order():
    groups = np.zeros(300, np.int64)
    one, other = stratified(groups, (0.2, 0.2), 0), stratified(groups, (0.2, 0.2), 1)
    assert (one != other).any() and (np.diff(one) < 0).any()


@given(st.lists(st.integers(0, 40), min_size=3, max_size=150), shares)
def test_no_older_row_is_in_a_later_part_and_rows_of_one_moment_stay_together(moments, shares):
    if len(set(moments)) < 3:
        with pytest.raises(DataError, match="too few different times"):
            parts_by_time(column(moments), "when", "here", shares)
        return
    parts = parts_by_time(column(moments), "when", "here", shares)
    moments = np.array(moments)
    for part in (0, 1):
        assert moments[parts == part].max() < moments[parts == part + 1].min()
    assert len(np.unique(parts)) == 3


def test_the_newest_are_the_test_however_time_is_written():
    day = date(2026, 1, 1)
    days = [day + timedelta(days=number) for number in range(100)]
    zoned = [datetime(d.year, d.month, d.day, tzinfo=timezone.utc) for d in days]
    expected = [0] * 70 + [1] * 15 + [2] * 15
    for values, kind in (
        (days, pa.date32()),
        (days, pa.date64()),
        (zoned, pa.timestamp("ns", "Europe/Berlin")),
        (zoned, pa.timestamp("s", "UTC")),
        ([str(d) for d in days], pa.string()),
        ([f"{d} 12:00:00" for d in days], pa.string()),
        (list(range(100)), pa.uint64()),
    ):
        parts = parts_by_time(column(values, kind), "when", "here", (0.15, 0.15))
        assert parts.tolist() == expected, kind


def test_few_moments_are_cut_where_shares_are_nearest():
    """A year may have more rows than a part was to have."""
    years = [2020, 2021, 2022, 2023, 2024] * 20
    assert parts_by_time(column(years), "year", "here", (0.15, 0.15)).tolist() == [0, 0, 0, 1, 2] * 20
    mostly = [1] * 90 + [2] * 5 + [3] * 5
    assert parts_by_time(column(mostly), "year", "here", (0.15, 0.15)).tolist() == [0] * 90 + [1] * 5 + [2] * 5


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["yesterday"] * 9, "can't be read"),
        ([1, 2, None, 4], "no time in column 'when' of row 3"),
        ([1.0, float("nan"), 2.0], "no time in column 'when' of row 2"),
        ([5] * 20, "too few different times"),
        ([[1], [2]], "not numbers"),
    ],
)
def test_times_that_are_none_are_refused(values, says):
    with pytest.raises(DataError, match=says):
        parts_by_time(column(values), "when", "here", (0.15, 0.15))


@given(st.lists(st.sampled_from(["train", "Training", " VAL ", "dev", "test", "0", "1", "2"]), min_size=1))
def test_a_column_says_the_part_in_many_words(words):
    known = {"train": 0, "training": 0, "val": 1, "dev": 1, "test": 2, "0": 0, "1": 1, "2": 2}
    assert parts_by_column(column(words), "split", "here").tolist() == [known[word.strip().lower()] for word in words]


def test_numbers_say_parts_too_and_anything_else_is_named_by_row():
    assert parts_by_column(column([0, 2, 1]), "split", "here").tolist() == [0, 2, 1]
    assert parts_by_column(column([0.0, 2.0]), "split", "here").tolist() == [0, 2]
    dictionary = pa.chunked_array([pa.array(["train"]).dictionary_encode(), pa.array(["test"]).dictionary_encode()])
    assert parts_by_column(dictionary, "split", "here").tolist() == [0, 2]
    for wrong in (["train", "holdout"], ["train", None], [0, 3]):
        with pytest.raises(DataError, match="in column 'split' of row 2, which isn't a part"):
            parts_by_column(column(wrong), "split", "here")
    with pytest.raises(DataError, match="holds list"):
        parts_by_column(column([["train"]]), "split", "here")


def test_missing_parts_are_cut_from_training_and_given_ones_stay():
    given_parts = np.array([0] * 80 + [2] * 20)
    groups = np.arange(100) % 4
    parts, notes = completed(given_parts, groups, (0.25, 0.1), 0)
    assert (parts[80:] == 2).all() and (parts[:80] != 2).all() and (parts == 1).sum() == 20
    assert "no rows for validation" in notes[0]
    assert completed(np.array([0, 1, 2]), np.zeros(3, np.int64), (0.1, 0.1), 0)[1] == []
    with pytest.raises(DataError, match="no row is for training"):
        completed(np.array([1, 2]), np.zeros(2, np.int64), (0.1, 0.1), 0)


def test_a_client_with_one_row_is_called_by_its_name_and_its_column():
    with pytest.raises(DataError, match=r"the client 'b' has one row, and .* whether 'ward' is the column"):
        by_client(np.array([0, 0, 1]), ("a", "b"), 0, "ward")
    with pytest.raises(DataError, match="like 1 other of 3"):
        by_client(np.array([0, 1, 2, 2]), ("a", "b", "c"), 0, "ward")


@pytest.mark.parametrize(
    "written", ["{0}/{1:02}/{2:02}", "{0}/{1}/{2}", "{0}.{1}.{2}", "{0}-{1}-{2}", "{0}/{1}/{2} 7:05:00"]
)
def test_dates_whose_year_comes_first_are_times_however_they_are_written(written):
    days = [(2014, 12, 31), (2015, 1, 5), (2015, 1, 15), (2015, 11, 2)] * 5
    column = pa.chunked_array([[written.format(*day).replace(" 7", " 07") for day in days]])
    codes = parts_by_time(column, "date", "here", (0.25, 0.25))
    assert codes.tolist() == [0, 0, 1, 2] * 5
    with pytest.raises(DataError, match="2026-01-31"):
        parts_by_time(pa.chunked_array([["01/02/2026", "03/04/2026", "05/06/2026"]]), "date", "here", (0.25, 0.25))
