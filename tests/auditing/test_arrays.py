"""Audits of arrays find what was planted, and refuse what they can't use in a sentence."""

import numpy as np
import pytest
import torch

from holdfast.auditing.arrays import audit_arrays, find_surroundings
from holdfast.errors import DataError


def planted(n: int = 600, seed: int = 0):
    """Two classes in 16 dimensions: a shortcut, ten wrong labels, copies, an outlier; with out-of-sample softmax.

    Class 0 has 60 examples whose shortcut (dimension 1) points to class 1; the model sees the shortcut only.
    """
    random = np.random.default_rng(seed)
    true = np.arange(n) % 2
    shortcut = true.copy()
    shortcut[0:120:2] = 1  # a minority of class 0
    features = random.normal(size=(n, 16))
    features[:, 0] += 6 * true
    features[:, 1] += 6 * shortcut
    labels = true.copy()
    wrong = np.arange(301, 321, 2)
    labels[wrong] = 0
    features[500] = features[400]
    features[598] = 40 * random.normal(size=16)
    score = 4 * (features[:, 1] - 3) + random.normal(size=n)
    p = 1 / (1 + np.exp(-np.clip(score, -8, 8)))
    return labels, np.stack([1 - p, p], 1), features, wrong


def test_what_was_planted_is_found():
    labels, p, features, wrong = planted()
    found = audit_arrays(labels, p, features)
    least = set(found.quality.order[:75].tolist())
    assert len(least & set(wrong.tolist())) >= 8, "wrong labels are among what the model believes least"
    group = found.suspected_groups[0]
    assert (group.label, group.mistaken_for) == (0, 1)
    assert found.look(group).verdict == "ok", "60 of 70 are a minority, which has a look of its own"
    assert bool(found.in_groups[0:120:2].all())
    assert [sorted(one.tolist()) for one in found.surroundings.sets()] == [[400, 500]]
    assert found.surroundings.exact.nonzero().flatten().tolist() == [400, 500]


def test_a_cluster_of_wrong_labels_is_told_from_a_group():
    _, _, features, _ = planted()
    true = np.arange(600) % 2
    plain = features.copy()
    plain[:, 1] = plain[:, 0]  # no shortcut anywhere
    plain[0:120:2, 0] += 6
    plain[0:120:2, 1] += 6  # of class 1 in all but their label
    score = np.clip(4 * (plain[:, 1] - 3), -8, 8)
    q = 1 / (1 + np.exp(-score))
    found = audit_arrays(true, np.stack([1 - q, q], 1), plain)
    (group,) = found.suspected_groups
    look = found.look(group)
    assert look.verdict == "doubtful"
    assert "its labels may be wrong" in look.sentence
    assert "relabel" in look.remedy


def test_an_outlier_is_far_from_everybody():
    points = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    points[17] = 50.0
    lies = find_surroundings(points)
    assert lies.outlier.nonzero().flatten().tolist() == [17]
    assert lies.distance.argmax() == 17
    assert float(lies.distance.median()) == pytest.approx(1)


def test_copies_connect_into_one_set_and_multiples_are_no_copies():
    points = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    points[10] = points[11] = points[12]
    points[50] = 2 * points[51]
    lies = find_surroundings(points)
    assert [sorted(one.tolist()) for one in lies.sets()] == [[10, 11, 12], [50, 51]]
    assert lies.exact.nonzero().flatten().tolist() == [10, 11, 12]


def test_words_are_classes_in_the_order_of_the_alphabet_or_as_they_are_named():
    p = [[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]]
    found = audit_arrays(["cat", "dog", "cat"], p)
    assert (found.labels.tolist(), found.class_names) == ([0, 1, 0], ("cat", "dog"))
    named = audit_arrays(["cat", "dog", "cat"], p, class_names=["dog", "cat"])
    assert named.labels.tolist() == [1, 0, 1]


GOOD = np.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]])
NAN = np.array([[0.9, 0.1], [np.nan, 0.8], [0.8, 0.2]])


@pytest.mark.parametrize(
    ("labels", "p", "features", "said"),
    [
        ([0, 1, 0], None, None, "labels only; give the probabilities of a model, or features"),
        ([0, 1], GOOD, None, r"2 labels and probabilities have shape \(3, 2\); give a row per label"),
        ([0, 1, 0], GOOD, np.zeros((2, 4)), r"3 labels and features have shape \(2, 4\)"),
        ([0, 1, 0], NAN, None, r"probabilities of 1 examples are not finite .* the first in row 1"),
        ([0, 1, 0], GOOD, np.full((3, 2), np.inf), "features of 3 examples are not finite"),
        ([0, 1, 0], GOOD / 2, None, r"3 rows of the probabilities don't sum to one, the first is row 0 \(sum 0.5\)"),
        ([0, 1, 0], np.log(GOOD), None, "are they logits\\? give their softmax"),
        ([0, 1, 2], GOOD, None, "a label is 2 and the probabilities have 2 columns"),
        ([0, -1, 1], GOOD, None, "a label is -1; give classes from 0"),
        ([0, 0.5, 1], GOOD, None, "not whole numbers"),
        ([0, np.nan, 1], GOOD, None, r"1 labels are missing \(NaN\)"),
        ([[0, 1], [1, 0], [0, 1]], GOOD, None, r"labels have shape \(3, 2\); give one class per example"),
        ([0, 1, 0], GOOD[:, 0], None, r"probabilities have shape \(3,\); give a row per example"),
        ([0, 0, 0], GOOD[:, :1] * 0 + 1, None, "probabilities have one column; give two"),
        (["a", "b", "c"], GOOD, None, "3 different labels and 2 columns"),
        (["a", None, "b"], GOOD, None, "1 labels are missing"),
        ([0, 1, 0], np.array([["x", "y"]] * 3), None, "probabilities are of type <U1; give numbers"),
        ([0], GOOD[:1], None, "there is 1 example; give at least 2"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(labels, p, features, said):
    with pytest.raises(DataError, match=said):
        audit_arrays(labels, p, features)


def test_examples_of_one_class_and_constant_rows_are_no_reason_to_stop():
    found = audit_arrays([0, 0, 0, 0], np.full((4, 2), 0.5), np.ones((4, 3)))
    assert not bool(found.quality.wrong.any())
    assert [len(one) for one in found.surroundings.sets()] == [4]
    assert not bool(found.surroundings.outlier.any())
