import pytest
import torch

from holdfast.errors import HoldfastWarning
from holdfast.spurious.group_inference.health import (
    epoch_of_inference,
    error_set,
    length_of_epochs,
    minorities,
    plausible_silhouette,
    separation,
)
from holdfast.spurious.group_inference.separation import separate


def verdicts(findings):
    return {finding.check: finding.verdict for finding in findings}


def two_sides(minority, spread, n=400):
    """Outputs of two classes of which a part points to the other class."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    attributes = torch.where(torch.rand(n, generator=stream) < minority, 1 - labels, labels)
    points = (attributes + spread * torch.randn(n, generator=stream)).sigmoid()
    return torch.stack([1 - points, points], 1), labels, attributes


def test_a_gap_with_a_minority_is_good_and_a_cloud_cut_in_two_is_not():
    good = verdicts(separation(separate(*two_sides(0.1, 0.02)[:2], seed=0)))
    assert good == {"separation of clusters": "ok", "share of inferred minorities": "ok"}
    with pytest.warns(HoldfastWarning, match="majority split"):
        partition = separate(*two_sides(0.0, 1.0)[:2], seed=0)
    cloud = verdicts(separation(partition))
    assert "ok" not in (cloud["separation of clusters"], cloud["share of inferred minorities"])


def test_an_error_set_of_a_model_that_has_not_learned_fails():
    labels = torch.arange(2000) % 2
    wrong = torch.zeros(2000, dtype=torch.bool)
    wrong[:700] = True  # the issue's: 700 of 2,000
    assert verdicts(error_set(wrong, labels))["skill of the first stage"] == "failed"
    wrong[100:] = False
    assert verdicts(error_set(wrong, labels)) == {"skill of the first stage": "ok", "size of the error set": "ok"}
    wrong[3:] = False
    assert verdicts(error_set(wrong, labels))["size of the error set"] == "doubtful"


def test_one_class_alone_has_no_skill_to_speak_of():
    assert verdicts(error_set(torch.tensor([True, False]), torch.zeros(2, dtype=torch.int64)))


def test_the_true_minority_is_pure_and_a_random_set_is_not():
    _, labels, attributes = two_sides(0.1, 0.0)
    minority = attributes != labels
    found = verdicts(minorities(2 * labels + minority, labels, attributes))
    assert found == {"purity of inferred minorities": "ok", "recall of minorities": "ok"}
    chance = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)) < 0.1
    lost = verdicts(minorities(2 * labels + chance, labels, attributes))
    assert lost["recall of minorities"] == "failed"
    assert lost["purity of inferred minorities"] != "ok"


def test_a_set_without_minorities_is_not_judged_by_them():
    labels = torch.arange(10) % 2
    assert minorities(2 * labels, labels, labels) == []


def test_the_curve_of_silhouettes_says_whether_it_was_still_rising():
    assert epoch_of_inference({1: 0.5, 2: 0.6, 3: 0.7}, 3, 0.9).verdict == "doubtful"
    assert epoch_of_inference({1: 0.5, 2: 0.7, 3: 0.6}, 2, 0.9).verdict == "ok"
    found = epoch_of_inference({1: 0.5, 2: 0.6, 3: 0.95}, 3, 0.9)
    assert found.verdict == "ok", "well separated, wherever it lies"
    assert "0.50, 0.60, 0.95" in found.sentence


def test_a_handful_of_odd_examples_and_a_half_are_no_plausible_minority():
    clear = separate(*two_sides(0.1, 0.02)[:2], seed=0)
    assert plausible_silhouette(clear) > 0.9
    few = separate(*two_sides(0.01, 0.02)[:2], seed=0)
    assert plausible_silhouette(few) == 0
    halves = separate(*two_sides(0.5, 0.02)[:2], seed=0)
    assert plausible_silhouette(halves) == 0


def test_epochs_that_are_much_longer_are_doubtful():
    assert length_of_epochs(18.0).verdict == "doubtful"
    assert length_of_epochs(3.5).verdict == "ok"
