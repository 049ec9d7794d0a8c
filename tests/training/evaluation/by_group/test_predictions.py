"""Tables of predictions, as people have them: what is read, and what is refused in a sentence."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.data.own.source import Source
from holdfast.data.own.values import MISSING
from holdfast.errors import ConfigError, DataError
from holdfast.training.evaluation.by_group.predictions import PredictionColumns, judged_table


def read(columns, label="y", predicted="p", **asked):
    return judged_table(Source("table.csv", pa.table(columns)), PredictionColumns(label, predicted, **asked))


def rows_of(table, name):
    attribute = table.groups[name]
    return {level: rows.tolist() for level, rows in zip(attribute.levels, attribute.rows, strict=True)}


def test_one_class_is_one_however_it_is_written():
    table = read({"y": [True, False, True], "p": [1.0, 0.0, 0.0]})
    assert table.judged.class_names == ("0", "1")
    assert table.judged.truth.tolist() == [1, 0, 1] and table.judged.predicted.tolist() == [1, 0, 0]
    words = read({"y": ["yes ", "no"], "p": ["yes", "yes"]})
    assert words.judged.class_names == ("no", "yes") and words.judged.predicted.tolist() == [1, 1]
    assert "'yes'" in words.notes[0]


def test_probabilities_are_of_the_positive_class_or_of_each():
    one = read({"y": ["a", "b"], "q": [0.25, 0.75]}, predicted=None, probability=("q",), positive="a")
    assert one.judged.probabilities.tolist() == [[0.25, 0.75], [0.75, 0.25]]
    assert one.judged.predicted.tolist() == [1, 0]
    columns = {"y": [10, 2, 2], "p_2": [0.5, 0.2, 0.9], "p_10": [0.5, 0.8, 0.1]}
    every = read(columns, predicted=None, probability=("p_*",))
    named = read(columns, predicted=None, probability=("10=p_10", "2=p_2"))
    for table in (every, named):
        assert table.judged.class_names == ("2", "10")
        assert table.judged.probabilities[:, 1].tolist() == [0.5, 0.8, 0.1]


def test_missing_values_are_a_group_and_said_so():
    table = read({"y": [0, 1, 1], "p": [0, 1, 0], "g": ["a", None, "a"], "n": [1.0, 2.0, None]}, groups=("g", "n"))
    assert rows_of(table, "g") == {"a": [0, 2], MISSING: [1]}
    assert rows_of(table, "n") == {"1": [0], "2": [1], MISSING: [2]}
    assert sum("have no" in note for note in table.notes) == 2


def test_lists_and_separated_words_make_groups_that_overlap():
    columns = {"y": [0, 1, 1], "p": [0, 1, 0], "g": [["a", "b"], ["b"], []], "w": ["a; b", "b", None]}
    table = read(columns, groups=("g", "w:list"))
    assert rows_of(table, "g") == {"a": [0], "b": [0, 1]}
    assert rows_of(table, "w") == {MISSING: [2], "a": [0], "b": [0, 1]}


def test_numbers_are_cut_at_their_quantiles():
    table = read({"y": [0, 1] * 4, "p": [0, 1] * 4, "age": np.arange(8.0) + 0.5}, groups=("age:4",))
    assert [len(rows) for rows in table.groups["age"].rows] == [2, 2, 2, 2]


def test_fractions_are_quantities_and_whole_numbers_are_if_one_says_so():
    assert read({"y": [0.5, 1.5], "p": [1.0, 1.0]}).judged.task == "quantities"
    assert read({"y": [1, 2], "p": [1.5, 2.5]}, task="regression").judged.task == "quantities"
    assert read({"y": [1, 2], "p": [1, 2]}).judged.task == "classes"


TWO = {"y": [0, 1], "p": [0, 1], "q": [0.1, 0.9], "sex": ["f", "m"], "w": [1.0, None]}


@pytest.mark.parametrize(
    ("columns", "asked", "error", "sentence"),
    [
        (TWO, {"label": "Y"}, DataError, "no column 'Y'; known are p, q, sex, w, y"),
        (TWO, {"predicted": None}, ConfigError, "--predicted COLUMN, --probability COLUMN"),
        (TWO, {"predicted": "q"}, DataError, "--probability q if it is that of the positive class"),
        (TWO, {"groups": ("sx",)}, DataError, "no column 'sx'; did you mean 'sex'"),
        (TWO, {"groups": ("sex:4",)}, DataError, "not numbers"),
        (TWO, {"groups": ("sex:lst",)}, ConfigError, "sex:list for lists"),
        (TWO, {"groups": ("q",)}, DataError, "--group q:4"),
        (TWO, {"weight": "w"}, DataError, "weights in column 'w'.*first is row 2"),
        (TWO, {"weight": "sex"}, DataError, "not numbers"),
        (TWO, {"positive": "2"}, DataError, "no class '2'"),
        (TWO, {"task": "regression", "probability": ("q",)}, ConfigError, "--probability is for classes"),
        (TWO, {"task": "regression", "positive": "1"}, ConfigError, "--positive is for classes"),
        (TWO, {"probability": ("q", "p")}, ConfigError, "does not say of which class"),
        (TWO, {"probability": ("p_*",)}, DataError, r"no column of table.csv is called p_\*"),
        (TWO, {"probability": ("1=q",)}, ConfigError, "'0' have no column of probabilities"),
        (TWO, {"probability": ("1=r",)}, DataError, "no column 'r'"),
        ({"y": [0, None], "p": [0, 1]}, {}, DataError, "nothing in column 'y' of 1 row .the first is row 2"),
        ({"y": [0.5, 1], "p": [0, 1]}, {"task": "classes"}, DataError, "0.5 in row 1, which isn.t a class"),
        ({"y": [[0], [1]], "p": [0, 1]}, {}, DataError, "one class per row"),
        ({"y": ["1.5", "2"], "p": [0, 1]}, {"task": "regression"}, DataError, "not numbers"),
        ({"y": [0.5, float("nan")], "p": [0, 1]}, {}, DataError, "values in column 'y'.*first is row 2"),
        ({"y": [0, 1, 2], "p": [0, 1, 2], "q": [0.1, 0.2, 0.3]}, {"probability": ("q",)}, ConfigError, "3 classes"),
        ({"y": [0, 1], "p": [0, 1], "q": [0.1, 1.9]}, {"probability": ("q",)}, DataError, "not logits"),
        ({"y": [0, 1], "p": [0, 1], "g": [None, None]}, {"groups": ("g",)}, DataError, "is empty"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(columns, asked, error, sentence):
    with pytest.raises(error, match=sentence):
        read(columns, **asked)
