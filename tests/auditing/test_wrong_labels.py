"""Self-confidence and likely errors against cleanlab's own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.auditing.wrong_labels import label_quality


def _noisy(n, classes, seed, noise=0.1, skill=1.5):
    random = np.random.default_rng(seed)
    true = random.integers(classes, size=n)
    p = random.dirichlet(np.full(classes, 0.4), size=n) + skill * np.eye(classes)[true] * random.random((n, 1))
    given_labels = np.where(random.random(n) < noise, random.integers(classes, size=n), true)
    given_labels[:classes] = np.arange(classes)
    p /= p.sum(1, keepdims=True)
    return torch.from_numpy(p.astype(np.float32)), torch.from_numpy(given_labels)


@settings(max_examples=10, deadline=None)
@given(st.integers(60, 150), st.integers(2, 6), st.integers(0, 10_000), st.sampled_from([0.1, 1.5]))
def test_order_and_errors_are_those_of_cleanlab(n, classes, seed, skill):
    rank = pytest.importorskip("cleanlab.rank")
    filtering = pytest.importorskip("cleanlab.filter")
    p, labels = _noisy(n, classes, seed, skill=skill)
    ours = label_quality(p, labels)
    theirs = rank.get_label_quality_scores(labels.numpy(), p.numpy())
    np.testing.assert_allclose(ours.confidence.numpy(), theirs, rtol=1e-6)
    np.testing.assert_array_equal(theirs[ours.order.numpy()], np.sort(theirs))
    issues = filtering.find_label_issues(labels.numpy(), p.numpy(), filter_by="confident_learning", n_jobs=1)
    np.testing.assert_array_equal(ours.wrong.numpy(), issues)


def test_blocks_change_nothing(monkeypatch):
    p, labels = _noisy(500, 4, 0)
    whole = label_quality(p, labels)
    monkeypatch.setattr("holdfast.auditing.wrong_labels._BLOCK", 7)
    parts = label_quality(p, labels)
    assert torch.equal(whole.wrong, parts.wrong)
    assert torch.equal(whole.suggested, parts.suggested)


def test_labels_that_the_model_agrees_with_are_not_wrong():
    p, labels = _noisy(500, 4, 1, noise=0.3)
    quality = label_quality(p, labels)
    assert bool(quality.wrong.any())
    assert not bool((quality.wrong & (quality.suggested == labels)).any())
