import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.roles import assign
from holdfast.data.own.source import Source
from holdfast.errors import ConfigError, DataError, HoldfastError
from tests.data.own.wards import source, wards

PROSE = [f"a long enough text, which is number {i}" for i in range(20)]


def roles(columns, **options):
    return assign(source(columns), ReadingOptions(**options))


def test_columns_are_guessed_by_their_names_and_that_is_told():
    found = roles({"Y": ["a", "b"], "Gender": ["f", "m"], "ID": [1, 2], "x": [1.0, 2.0], "Split": ["train", "test"]})
    assert (found.label, found.attributes, found.id, found.split) == ("Y", ("Gender",), "ID", "Split")
    assert found.kind == "table" and found.inputs == ("x",)
    assert {note.partition(":")[0] for note in found.notes} == {"label", "attribute", "id", "split"}


def test_what_the_user_says_wins_and_none_is_none():
    found = roles(wards(), label="ward", attribute=("none",))
    assert found.label == "ward" and found.attributes == () and "label" in found.inputs
    assert roles({**wards(), "split": ["train"] * 60}, split="none").split is None
    assert roles({**wards(), "id": range(60)}, id="none").id is None


def test_a_column_called_like_an_attribute_with_a_value_for_every_row_is_an_input():
    found = roles({"a": range(40), "b": range(40), "label": ["x", "y"] * 20})
    assert found.attributes == () and found.inputs == ("a", "b")


def test_a_column_called_split_that_says_something_else_is_an_input():
    found = roles({**wards(), "split": ["left", "right"] * 30})
    assert found.split is None and "split" in found.inputs


def test_long_texts_are_texts_and_short_ones_categories():
    labels = ["a", "b"] * 10
    assert roles({"note": PROSE, "label": labels}).kind == "text"
    assert roles({"note": ["red", "green"] * 10, "label": labels}).kind == "table"
    assert roles({"note": PROSE, "label": labels, "x": range(20)}, features=("x",)).kind == "table"


def test_a_few_wrong_paths_do_not_make_images_a_category():
    files = [f"{i}.png" for i in range(9)] + ["/etc/passwd"]
    found = assign(Source("photos", pa.table({"file_name": files, "label": ["a", "b"] * 5})), ReadingOptions())
    assert (found.kind, found.inputs) == ("image", ("file_name",))


COLUMNS = [["a", "b"], [1, 2], [[1], [2]], [None, None]]


@given(st.dictionaries(st.text(max_size=8), st.sampled_from(COLUMNS), min_size=1), st.text(max_size=8),
       st.sampled_from(["label", "text", "image", "client", "split", "time", "id"]))  # fmt: skip
def test_any_names_of_columns_are_roles_or_a_sentence(columns, name, role):
    try:
        found = roles(columns, **{role: name})
    except HoldfastError as error:
        assert str(error).isprintable()
        return
    assert name in columns or name == "none"
    assert found.label not in found.inputs and not set(found.attributes) & set(found.inputs)


def test_a_column_that_is_not_there_offers_the_nearest():
    with pytest.raises(DataError, match="no column 'sexx'; did you mean 'sex'"):
        roles(wards(), attribute=("sexx",))
    with pytest.raises(DataError, match="no column 'zzz'; it has 'age', 'beds', 'ward', 'sex', 'label'"):
        roles(wards(), client="zzz")
    with pytest.raises(DataError, match="no column left for the inputs"):
        roles({"label": ["a", "b"]})


@pytest.mark.parametrize(
    "options",
    [
        {"validation_share": 0.0}, {"test_share": float("nan")}, {"test_share": 1.5},
        {"validation_share": 0.6, "test_share": 0.5},
        {"image_size": 0}, {"image_size": 5_000}, {"max_tokens": 0}, {"split_seed": -1}, {"image_workers": -1},
        {"split": "a", "time": "b"}, {"text": "a", "image": "b"}, {"text": "a", "features": ("b",)},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        ReadingOptions(**options)
