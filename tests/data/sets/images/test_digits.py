import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

from holdfast.data import load
from holdfast.data.sets.images import digits


def test_digits_are_scikit_learns_in_three_disjoint_parts() -> None:
    splits = load("digits", seed=3)
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part) for part in parts] == [1100, 300, 397]
    assert sorted(torch.cat([part.ids for part in parts]).tolist()) == list(range(1797))
    bunch = load_digits()
    for part in parts:
        inputs, labels = part.gather(torch.arange(len(part)))
        np.testing.assert_array_equal(labels, bunch.target[part.ids])
        np.testing.assert_array_equal(inputs[:, 0] * 16, bunch.images[part.ids])


def test_the_split_depends_on_the_seed() -> None:
    assert torch.equal(load("digits", seed=1).test.ids, load("digits", seed=1).test.ids)
    assert not torch.equal(load("digits", seed=1).test.ids, load("digits", seed=2).test.ids)


def test_they_are_read_without_importing_scikit_learn_and_by_it_where_its_files_lie_elsewhere(monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.datasets", None)  # importing it fails
        images, classes = digits.bundled_digits()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    for ours, theirs in zip((images, classes), digits.bundled_digits(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype and ours.flags.c_contiguous
