import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from holdfast.data.own.features import TableEncoder, fit_encoder, table_inputs
from holdfast.errors import DataError
from tests.data.own.wards import source

numbers = st.floats(-1e4, 1e4, allow_nan=False).map(lambda x: round(x, 2))


@st.composite
def tables(draw):
    """Numbers, some missing, and categories, some missing; and which rows are for training."""
    n = draw(st.integers(4, 40))
    frame = pd.DataFrame(
        {
            "x": draw(st.lists(numbers, min_size=n, max_size=n)),
            "y": draw(st.lists(st.none() | numbers, min_size=n, max_size=n)),
            "c": draw(st.lists(st.sampled_from(["red", "green", "blue", None]), min_size=n, max_size=n)),
        }
    ).astype({"x": float, "y": float, "c": object})
    training = np.flatnonzero(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return frame, training


def as_source(frame):
    return source({name: pa.array(frame[name], from_pandas=True) for name in frame})


def encoded(frame, encoder):
    inputs = table_inputs(as_source(frame), encoder)
    return inputs.gather(torch.arange(len(frame)))


@given(tables())
def test_rows_are_encoded_as_scikit_learn_would(table):
    frame, training = table
    known = frame.iloc[training]
    if any(known[name].nunique() < 2 for name in frame):
        return
    encoder, _ = fit_encoder(as_source(frame), list(frame), training)
    ours = encoded(frame, encoder).numpy()
    imputer = SimpleImputer(strategy="median", add_indicator=True)
    imputer.fit(known[["x", "y"]])
    filled = imputer.transform(frame[["x", "y"]])
    scaler = StandardScaler().fit(imputer.transform(known[["x", "y"]])[:, :2])
    expected = np.hstack([scaler.transform(filled[:, :2]), filled[:, 2:]])
    categories = sorted(known["c"].dropna().unique())
    one_hot = OneHotEncoder(categories=[categories], handle_unknown="ignore", sparse_output=False)
    words = frame[["c"]].fillna("(other)")
    hot = one_hot.fit(pd.DataFrame({"c": categories})).transform(words)
    other = 1 - hot.sum(1, keepdims=True)
    np.testing.assert_allclose(ours, np.hstack([expected, hot, other]), rtol=1e-4, atol=1e-4)


@given(tables(), st.integers(0, 2**30))
def test_other_rows_than_those_for_training_change_nothing(table, seed):
    frame, training = table
    if any(frame.iloc[training][name].nunique() < 2 for name in frame):
        return
    rng = np.random.default_rng(seed)
    changed = frame.copy()
    rest = np.setdiff1d(np.arange(len(frame)), training)
    changed.loc[rest, "x"] = rng.normal(size=len(rest)) * 1e3
    changed.loc[rest, "y"] = np.nan
    changed.loc[rest, "c"] = "unheard of"
    one, _ = fit_encoder(as_source(frame), list(frame), training)
    other, _ = fit_encoder(as_source(changed), list(frame), training)
    assert one == other
    assert torch.equal(encoded(frame, one)[training], encoded(changed, other)[training])


@given(tables())
def test_an_encoder_survives_json_to_the_bit(table):
    frame, training = table
    if not len(training) or frame.iloc[training]["x"].nunique() < 2:
        return
    encoder, _ = fit_encoder(as_source(frame), list(frame), training)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder and torch.equal(encoded(frame, again), encoded(frame, encoder))


def test_gathered_rows_are_rows_of_the_whole():
    frame = pd.DataFrame({"x": np.arange(9.0), "c": list("aabbccabc")})
    encoder, _ = fit_encoder(as_source(frame), ["x", "c"], np.arange(9))
    inputs = table_inputs(as_source(frame), encoder)
    assert inputs.fits_memory and len(inputs) == 9
    assert torch.equal(inputs.gather(torch.tensor([7, 0])), inputs.gather(torch.arange(9))[[7, 0]])
    assert inputs.gather(torch.empty(0, dtype=torch.int64)).shape == (0, encoder.width)


def test_a_column_that_says_nothing_is_left_out_and_that_is_told():
    n = 40
    frame = pd.DataFrame(
        {
            "x": np.arange(n, dtype=float),
            "constant": 1.0,
            "word": "same",
            "name": [f"person {i}" for i in range(n)],
            "empty": np.nan,
        }
    )
    encoder, notes = fit_encoder(as_source(frame), list(frame), np.arange(n))
    assert [part.column for part in encoder.parts] == ["x"]
    told = " ".join(notes)
    assert "name (almost as many values as rows)" in told and "constant" in told and "word" in told
    lists = source({"x": pa.array([1.0, 2.0]), "tags": pa.array([["a"], ["b"]])})
    assert "tags" in " ".join(fit_encoder(lists, ["x", "tags"], np.arange(2))[1])


def test_rare_categories_share_a_place():
    words = [f"w{i:03}" for i in range(100) for _ in range(2 + (i < 64))]
    frame = pd.DataFrame({"c": words})
    encoder, _ = fit_encoder(as_source(frame), ["c"], np.arange(len(words)))
    assert encoder.width == 65 and encoder.categories[0].values == tuple(f"w{i:03}" for i in range(64))
    vectors = encoded(frame, encoder)
    assert (vectors.sum(1) == 1).all() and vectors[-1, -1] == 1


@pytest.mark.parametrize("bad", [float("inf"), -float("inf")])
def test_an_infinite_number_is_named_by_its_row(bad):
    frame = pd.DataFrame({"x": [1.0, 2.0, bad, 3.0]})
    with pytest.raises(DataError, match=r"infinite number in column 'x' of 1 row .the first is row 3."):
        fit_encoder(as_source(frame), ["x"], np.arange(2))


def test_numbers_whose_spread_is_none_are_refused_and_far_ones_of_new_data_too():
    with pytest.raises(DataError, match=r"as large as 1e.308"):
        fit_encoder(as_source(pd.DataFrame({"x": [1e308, -1e308, 1e308]})), ["x"], np.arange(3))
    encoder, _ = fit_encoder(as_source(pd.DataFrame({"x": [1.0, 2.0]})), ["x"], np.arange(2))
    for value in (1e200, float("inf")):
        with pytest.raises(DataError, match="in column 'x' of row 2, which is infinite or too far"):
            table_inputs(as_source(pd.DataFrame({"x": [1.0, value]})), encoder)


def test_a_column_that_is_gone_or_of_another_kind_is_refused():
    encoder, _ = fit_encoder(as_source(pd.DataFrame({"x": [1.0, 2.0]})), ["x"], np.arange(2))
    with pytest.raises(DataError, match="has no column 'x', which the model was trained on"):
        table_inputs(source({"z": pa.array([1.0])}), encoder)
    with pytest.raises(DataError, match="holds string and not numbers"):
        table_inputs(source({"x": pa.array(["a"])}), encoder)
    categories, _ = fit_encoder(as_source(pd.DataFrame({"c": ["a", "b"]})), ["c"], np.arange(2))
    with pytest.raises(DataError, match="'c'"):
        table_inputs(source({"c": pa.array([[1], [2]])}), categories)


def test_a_table_without_a_usable_column_is_refused():
    with pytest.raises(DataError, match=r"no column that could be an input: left out: x .one value.; name some"):
        fit_encoder(as_source(pd.DataFrame({"x": [1.0, 1.0]})), ["x"], np.arange(2))
