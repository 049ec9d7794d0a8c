import pytest
import torch

from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.health.general import (
    above_chance,
    above_majority,
    against_reference,
    check_reference,
    worst_group,
)


def judged(labels, predicted, attributes=None):
    labels, predicted = torch.tensor(labels), torch.tensor(predicted)
    examples = Examples.of(
        torch.zeros(len(labels), 1), labels, attributes=None if attributes is None else torch.tensor(attributes)
    )
    return GroupReport.of(predicted, examples), examples


@pytest.mark.parametrize(("right", "verdict"), [(41, "failed"), (52, "doubtful"), (95, "ok")])
def test_a_balanced_test_of_two_classes_is_judged_against_a_coin(right, verdict):
    labels = [0] * 100 + [1] * 100
    predicted = [0] * right + [1] * (100 - right) + [1] * right + [0] * (100 - right)
    assert above_chance(judged(labels, predicted)[0]).verdict == verdict


def test_always_the_frequent_class_is_not_above_chance_however_many_are_right():
    report, _ = judged([0] * 95 + [1] * 5, [0] * 100)
    assert above_chance(report).verdict == "doubtful"
    assert above_majority(report).verdict == "ok"  # as good as the majority, not worse
    assert above_majority(judged([0] * 95 + [1] * 5, [0] * 85 + [1] * 15)[0]).verdict == "doubtful"


def test_a_group_that_follows_a_shortcut_fails():
    labels, attributes = [0] * 60 + [1] * 60, ([0] * 40 + [1] * 20) + ([1] * 40 + [0] * 20)
    report, _ = judged(labels, attributes, attributes)  # predicts the attribute
    finding = worst_group(report)
    assert finding.verdict == "failed"
    assert finding.sentence.startswith("0.0 % of its worst group")


def test_the_reference_is_the_yardstick():
    labels, attributes = [0, 0, 1, 1] * 25, [0, 1, 0, 1] * 25
    good, examples = judged(labels, labels, attributes)
    bad, _ = judged(labels, [0] * 8 + labels[8:], attributes)
    assert against_reference(good, bad).verdict == "ok"
    assert against_reference(bad, good).verdict == "failed"
    check_reference(good, examples)


def test_a_reference_on_other_examples_is_refused():
    report, _ = judged([0, 1] * 10, [0, 1] * 10)
    _, other = judged([0, 1] * 12, [0, 1] * 12)
    with pytest.raises(ConfigError, match=r"20 examples.*24.*same data"):
        check_reference(report, other)
    grouped, _ = judged([0, 1] * 12, [0, 1] * 12, [0, 0, 1, 1] * 6)
    with pytest.raises(ConfigError, match="same data"):
        check_reference(grouped, other)
