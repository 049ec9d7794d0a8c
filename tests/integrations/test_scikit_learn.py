import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from holdfast.errors import ConfigError, DataError
from holdfast.integrations.scikit_learn import FacilityLocation
from holdfast.primitives.facility_location import facility_location


def distances(X):
    return np.linalg.norm(X[:, None] - X, axis=2)


def directions(X):
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)


SIMILARITIES = {
    "euclidean": lambda X: distances(X).max() - distances(X),
    "cosine": lambda X: 1 + directions(X) @ directions(X).T,
    "exponential": lambda X: np.exp(-distances(X) / X.shape[1]),
}
METRICS = tuple(SIMILARITIES)

FEWER_ROWS = dict.fromkeys(
    (
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_sample_weight_equivalence_on_dense_data",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    ),
    "it asks for a row of transform(X) for every row of X, or for rows that were not fitted; transform selects rows",
)


@parametrize_with_checks([FacilityLocation(2)], expected_failed_checks=lambda _: FEWER_ROWS)
def test_it_has_the_manners_of_scikit_learn(estimator, check):
    check(estimator)


@st.composite
def tables(draw, smallest=1, dtype=np.float64):
    n, d = draw(st.integers(smallest, 40)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([0, 2, 9]))  # few levels make many ties
    return (rng.integers(levels, size=(n, d)) if levels else rng.normal(size=(n, d))).astype(dtype)


@given(tables(), st.data(), st.sampled_from(METRICS), st.sampled_from([np.float32, np.float64]))
def test_choices_gains_and_weights_are_those_of_the_naive_greedy(X, data, metric, dtype):
    X, k = X.astype(dtype), data.draw(st.integers(1, len(X)))
    found = FacilityLocation(k, metric=metric).fit(X)
    expected = facility_location(torch.from_numpy(X), k, metric=metric, method="naive")
    assert found.indices_.tolist() == expected.chosen.tolist()
    assert found.gains_.tolist() == expected.gains.tolist()
    assert found.weights_.tolist() == expected.weights.tolist()
    assert (np.diff(found.gains_) <= 0).all()
    assert found.weights_.sum() == len(X)
    assert len(set(found.indices_.tolist())) == k
    assert np.array_equal(found.transform(X), X[found.indices_])


def before_the_first_tie(similarity, indices, weight=1.0):
    """How many choices were clear: the second largest gain, computed from its definition, was smaller."""
    weight, best = np.broadcast_to(weight, len(similarity)), np.zeros(len(similarity))
    for number, index in enumerate(indices):
        gains = np.where(weight > 0, weight @ np.maximum(similarity - best[:, None], 0), -1)
        if (np.delete(gains, index) > gains[index] - 1e-4).any():
            return number
        best = np.maximum(best, similarity[:, index])
    return len(indices)


@given(tables(smallest=2), st.data(), st.sampled_from(METRICS))
def test_rows_in_another_order_have_the_same_exemplars_where_nothing_ties(X, data, metric):
    k = data.draw(st.integers(1, len(X)))
    order = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(len(X))
    found, shuffled = FacilityLocation(k, metric=metric).fit(X), FacilityLocation(k, metric=metric).fit(X[order])
    clear = before_the_first_tie(SIMILARITIES[metric](X), found.indices_)
    assert order[shuffled.indices_[:clear]].tolist() == found.indices_[:clear].tolist()
    assert shuffled.gains_[:clear] == pytest.approx(found.gains_[:clear], rel=1e-4, abs=1e-4)


@given(tables(smallest=3), st.data())
def test_whole_weights_are_repeated_rows_and_none_is_a_missing_row(X, data):
    weight = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(X), max_size=len(X)).filter(any)))
    k = data.draw(st.integers(1, int((weight > 0).sum())))
    weighted, repeated = FacilityLocation(k).fit(X, sample_weight=weight), np.repeat(np.arange(len(X)), weight)
    alone = FacilityLocation(k).fit(X[repeated])
    there = np.ix_(repeated, repeated)
    clear = before_the_first_tie(distances(X)[there].max() - distances(X), weighted.indices_, weight)
    assert repeated[alone.indices_[:clear]].tolist() == weighted.indices_[:clear].tolist()
    assert alone.gains_[: clear + 1] == pytest.approx(weighted.gains_[: clear + 1], rel=1e-4, abs=1e-4)
    assert (weight[weighted.indices_] > 0).all()
    assert weighted.weights_.sum() == weight.sum()


def test_arrays_tensors_and_lists_are_chosen_from_alike():
    X = np.random.default_rng(0).integers(99, size=(30, 3)).astype(np.float32)
    expected = FacilityLocation(5).fit(X)
    tensor = torch.from_numpy(X).requires_grad_()
    for same in (tensor, tensor.to(torch.bfloat16), X.tolist(), X.astype(int), np.asfortranarray(X)):
        assert FacilityLocation(5).fit(same).indices_.tolist() == expected.indices_.tolist()
    assert torch.equal(expected.transform(tensor), tensor[torch.from_numpy(expected.indices_)])


def test_a_data_frame_keeps_its_index():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0.0, 1, 2, 9], "b": [0.0, 0, 0, 0]}, index=list("wxyz"))
    assert FacilityLocation(2).fit_transform(frame).index.tolist() == ["x", "z"]


def test_given_similarities_are_chosen_from_as_the_points_they_are_of():
    X = np.random.default_rng(1).normal(size=(40, 3))
    found = FacilityLocation(7, metric="precomputed").fit(SIMILARITIES["euclidean"](X))
    assert found.indices_.tolist() == FacilityLocation(7).fit(X).indices_.tolist()
    weight = np.r_[np.zeros(20), np.ones(20)]
    found = FacilityLocation(7, metric="precomputed").fit(9 - distances(X), sample_weight=weight)
    assert found.indices_.tolist() == (20 + FacilityLocation(7).fit(X[20:]).indices_).tolist()


def test_it_stands_behind_scalers_and_before_steps_without_labels():
    X = np.random.default_rng(2).normal(size=(60, 5)) * [1, 10, 100, 1, 1]
    pipe = make_pipeline(StandardScaler(), PCA(3), FacilityLocation(20))
    rows = pipe.fit_transform(X, np.arange(60))
    reduced = PCA(3).fit_transform(StandardScaler().fit_transform(X))
    assert np.allclose(rows, reduced[pipe[-1].indices_])
    assert make_pipeline(FacilityLocation(20), KMeans(3, n_init=1)).fit(X)[-1].labels_.shape == (20,)


def test_stochastic_choices_depend_on_the_seed_alone():
    X = np.random.default_rng(3).normal(size=(200, 3))
    first = FacilityLocation(20, method="stochastic", random_state=1).fit(X)
    assert clone(first).fit(X).indices_.tolist() == first.indices_.tolist()
    assert (
        first.set_params(random_state=2).fit(X).indices_.tolist()
        != clone(first).set_params(random_state=1).fit(X).indices_.tolist()
    )
    drawn = [FacilityLocation(20, method="stochastic", random_state=np.random.RandomState(s)).fit(X) for s in (5, 5)]
    assert drawn[0].indices_.tolist() == drawn[1].indices_.tolist()


def test_few_are_chosen_where_more_would_add_little():
    X = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    gains = FacilityLocation(5).fit(X).gains_
    assert len(FacilityLocation(5, least_gain=gains[2]).fit(X).indices_) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_samples": 4}, "n_samples is 4 and X has 3 samples to choose from; give at most 3"),
        ({"n_samples": 0}, "give a whole number of at least 1"),
        ({"n_samples": 1.5}, "give a whole number of at least 1"),
        ({"metric": "cosinus"}, "did you mean 'cosine'"),
        ({"method": "gready"}, "did you mean 'greedy'"),
        ({"method": "stochastic", "epsilon": 2.0}, "give a number between 0 and 1"),
        ({"method": "stochastic", "least_gain": 2.0}, "gains of stochastic greedy go up and down"),
        ({"metric": "precomputed"}, "give a square matrix of similarities"),
    ],
)
def test_parameters_are_refused_in_fit_with_a_sentence(options, words):
    estimator = FacilityLocation(**{"n_samples": 1, **options})
    with pytest.raises((ConfigError, DataError), match=words):
        estimator.fit(np.eye(3)[:, :2])


def test_rows_that_are_not_finite_sparse_or_others_than_fitted_are_refused():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X = np.eye(3)
    with pytest.raises(ValueError, match="NaN"):
        FacilityLocation(1).fit(np.full((3, 2), np.nan))
    with pytest.raises(TypeError, match="dense data is required"):
        FacilityLocation(1).fit(scipy_sparse.csr_matrix(X))
    with pytest.raises(DataError, match="X has 2 rows and was fitted with 3"):
        FacilityLocation(1).fit(X).transform(X[:2])
    with pytest.raises(NotFittedError):
        FacilityLocation(1).transform(X)
    for weight in (np.ones(2), np.zeros(3), [1.0, -1, 1], [1.0, np.nan, 1]):
        with pytest.raises(DataError, match="weight"):
            FacilityLocation(1).fit(X, sample_weight=weight)


def test_the_primitives_do_not_import_scikit_learn_or_numba():
    code = (
        "import sys, holdfast.primitives.facility_location;"
        "assert not {'sklearn', 'numba'} & sys.modules.keys(), 'they take a second each'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
