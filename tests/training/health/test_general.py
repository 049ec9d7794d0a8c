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
    gain_over,
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
    bad, _ = judged(labels, [0] * 40 + labels[40:], attributes)
    for aims in (True, False):
        assert against_reference(good, bad, aims=aims).verdict == "ok"
        assert against_reference(good, good, aims=aims).verdict == "ok"
        assert against_reference(bad, good, aims=aims).verdict == "failed"
    check_reference(good, examples)


def wrong_in(group, count, size=200):
    """A report on four groups of which one has `count` wrong answers, and the examples."""
    labels, attributes = [0, 0, 1, 1] * size, [0, 1, 0, 1] * size
    predicted = list(labels)
    for place in range(count):
        predicted[4 * place + group] = 1 - predicted[4 * place + group]
    return judged(labels, predicted, attributes)[0]


@pytest.mark.parametrize(("wrong", "aims", "verdict"), [
    (20, True, "ok"),  # as plain training
    (21, True, "doubtful"),  # its aim was the worst group, and that is not better
    (21, False, "ok"),  # it had another aim
    (25, False, "doubtful"),
    (26, True, "failed"),  # three points, all pairs on one side
    (26, False, "doubtful"),
    (60, False, "failed"),
])  # fmt: skip
def test_who_aims_at_the_worst_group_has_to_raise_it(wrong, aims, verdict):
    assert against_reference(wrong_in(0, wrong), wrong_in(0, 20), aims=aims).verdict == verdict


def test_a_loss_that_may_be_luck_of_the_test_set_is_doubtful_and_no_failure():
    few, fewer = wrong_in(0, 3, size=20), wrong_in(2, 1, size=20)  # 15 % against 5 % of 20
    finding = against_reference(few, fewer, aims=True)
    assert (finding.verdict, round(finding.value, 3)) == ("doubtful", -0.1)


def test_without_groups_a_loss_in_a_class_may_be_the_price_of_a_gain_that_nobody_sees():
    plain, _ = judged([0, 1] * 100, [0, 1] * 100)
    worse, _ = judged([0, 1] * 100, [0, 1] * 80 + [0, 0] * 20)
    assert against_reference(worse, plain, aims=True).verdict == "doubtful"
    assert against_reference(worse, plain, aims=False).verdict == "failed"
    assert "worst class" in against_reference(worse, plain, aims=True).sentence


def test_a_worst_group_below_guessing_is_no_failure_if_plain_training_leaves_it_far_lower():
    helped, plain = wrong_in(0, 130), wrong_in(0, 199)  # 35 % and 0.5 %
    assert worst_group(helped).verdict == "failed"
    assert worst_group(helped, plain).verdict == "doubtful"
    assert worst_group(wrong_in(0, 104)).verdict == "doubtful"
    assert worst_group(wrong_in(0, 104), plain).verdict == "ok"  # 48 %, which may be chance
    assert worst_group(plain, plain).verdict == "failed"


def test_a_reference_whose_examples_are_not_known_is_compared_by_its_counts():
    plain = type(wrong_in(0, 20)).from_json(wrong_in(0, 20).to_json())
    assert plain.outcomes is None
    pairs, counts = gain_over(wrong_in(0, 40), wrong_in(0, 20)), gain_over(wrong_in(0, 40), plain)
    assert pairs.value == counts.value == pytest.approx(-0.1)
    assert counts.high - counts.low > pairs.high - pairs.low > 0


def test_a_reference_on_other_examples_is_refused():
    report, _ = judged([0, 1] * 10, [0, 1] * 10)
    _, other = judged([0, 1] * 12, [0, 1] * 12)
    with pytest.raises(ConfigError, match=r"20 examples.*24.*same data"):
        check_reference(report, other)
    grouped, _ = judged([0, 1] * 12, [0, 1] * 12, [0, 0, 1, 1] * 6)
    with pytest.raises(ConfigError, match="same data"):
        check_reference(grouped, other)
