import json

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.detection import Finding, discrepancies, mutual_information, rank_attributes


def planted(seed=0, n=500, words=200):
    """A class whose accuracy is .9 with word 17 and .4 without, among random words."""
    draw = np.random.default_rng(seed)
    present = draw.random((n, words)) < draw.uniform(0.01, 0.6, words)
    present[:, 17] = draw.random(n) < 0.5
    right = draw.random(n) < np.where(present[:, 17], 0.9, 0.4)
    return Attributes(tuple(f"word {w}" for w in range(words)), present), np.where(right, 0, draw.integers(1, 4, n))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", ["delta", "mutual_information"])
def test_a_planted_attribute_is_ranked_first(seed, order):
    attributes, predicted = planted(seed)
    first, *rest = rank_attributes(attributes, np.zeros(500, int), predicted, order=order)
    assert first.word == "word 17"
    assert first.delta == pytest.approx(0.5, abs=0.08)
    assert first.interval[0] < 0.5 < first.interval[1]
    assert all(first.mutual_information > other.mutual_information for other in rest)
    assert len(rest) == 4


def test_discrepancies_on_average_are_those_that_were_planted():
    values = [rank_attributes(*_of_one_class(seed))[0].delta for seed in range(20)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.03)


def _of_one_class(seed):
    attributes, predicted = planted(seed)
    return attributes, np.zeros(500, int), predicted


def test_every_number_equals_that_of_a_boolean_mask():
    attributes, predicted = planted()
    correct = predicted == 0
    findings = discrepancies(attributes.words, attributes.present, predicted, 0, min_support=1)
    assert len(findings) == 200
    for one, seen in zip(findings, attributes.present.T, strict=True):
        assert (one.support, one.absent) == (seen.sum(), (~seen).sum())
        assert one.delta == pytest.approx(correct[seen].mean() - correct[~seen].mean(), abs=1e-12)
        assert one.mutual_information == pytest.approx(mutual_info_score(seen, ~correct), abs=1e-12)
        assert one.confused == np.bincount(predicted[~correct]).argmax()


def test_mutual_information_of_independence_is_zero_and_of_equality_the_entropy():
    assert mutual_information(np.array([[2, 4], [3, 6]])) == 0
    assert mutual_information(np.array([[3, 0], [0, 1]])) == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert mutual_information(np.zeros((2, 2))) == 0


@pytest.mark.parametrize(("hits", "appears"), [(9, False), (10, True), (40, False)])
def test_words_that_few_or_all_images_show_never_appear(hits, appears):
    present = (np.arange(40) < hits)[:, None]
    predicted = np.where(np.arange(40) < 20, 0, 1)
    findings = rank_attributes(Attributes(("rare",), present), np.zeros(40, int), predicted)
    assert bool(findings) == appears


def test_attributes_that_harm_or_do_nothing_are_left_out():
    present = np.stack([np.arange(40) < 20, np.arange(40) % 2 == 0], 1)
    predicted = np.where(np.arange(40) < 20, 1, 0)
    assert rank_attributes(Attributes(("harms", "idle"), present), np.zeros(40, int), predicted) == []


def test_classes_are_searched_apart_and_ranked_together():
    """As in the shapes world: discs fail without sand, squares without sea, each taken for the other."""
    labels, grounds = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    predicted = np.where(np.arange(200) % 10 == 0, labels, grounds)
    attributes = Attributes(("sand", "sea"), np.stack([grounds == 0, grounds == 1], 1))
    findings = rank_attributes(attributes, labels, predicted, top=1)
    assert {(one.label, one.word, one.confused) for one in findings} == {(0, "sand", 1), (1, "sea", 0)}
    assert [one.delta for one in findings] == sorted((one.delta for one in findings), reverse=True)


def test_the_interval_is_newcombes():
    """Newcombe 1998, table II, case (a) for method 10: 56/70 - 48/80 gives 0.0524 to 0.3339."""
    finding = Finding(0, "word", 70, 80, 56, 48, 0.0, None)
    assert finding.delta == pytest.approx(0.2)
    assert finding.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)
    one_sided = Finding(0, "word", 10, 10, 10, 0, 0.0, 1)
    assert one_sided.interval[1] == 1
    assert 0 < one_sided.interval[0] < 1


def test_metadata_can_be_ranked_like_words():
    attributes, predicted = planted()
    flash = predicted == 0
    first = rank_attributes(attributes.with_column("flash", flash), np.zeros(500, int), predicted)[0]
    assert (first.word, first.delta) == ("flash", 1)
    with pytest.raises(DataError, match=r"'flash' has shape \(3,\) for 500 images"):
        attributes.with_column("flash", [True] * 3)


def test_a_finding_can_be_written_down():
    attributes, predicted = planted()
    stored = json.loads(json.dumps(rank_attributes(attributes, np.zeros(500, int), predicted)[0].to_json()))
    assert stored["word"] == "word 17"
    assert stored["delta"] == pytest.approx(stored["accuracy_with"] - stored["accuracy_without"])


def test_tables_that_do_not_fit_are_named():
    present = np.zeros((5, 2), bool)
    with pytest.raises(DataError, match="3 words and a table of shape"):
        Attributes(("a", "b", "c"), present)
    with pytest.raises(DataError, match="'a' has two columns"):
        Attributes(("a", "a"), present)
    attributes = Attributes(("a", "b"), present)
    with pytest.raises(DataError, match=r"5 images, labels of shape \(4,\)"):
        rank_attributes(attributes, np.zeros(4, int), np.zeros(4, int))
    with pytest.raises(ConfigError, match="min_support is 0"):
        rank_attributes(attributes, np.zeros(5, int), np.zeros(5, int), min_support=0)
    with pytest.raises(ConfigError, match="ordered by 'detla'; did you mean 'delta'"):
        rank_attributes(attributes, np.zeros(5, int), np.zeros(5, int), order="detla")
