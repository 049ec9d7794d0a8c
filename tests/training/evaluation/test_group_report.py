import json

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.metrics import accuracy_score, confusion_matrix

from holdfast.data import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.primitives.proportions import wilson
from holdfast.training.evaluation.criteria import CRITERIA, criterion, criterion_uses_groups
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import GroupScore

WATERBIRDS = ("landbird/land", "landbird/water", "waterbird/land", "waterbird/water")
WATERBIRDS_TRAIN = (3498, 184, 56, 1057)
WATERBIRDS_TEST = (2255, 2255, 642, 642)


def drawn(n: int = 500, n_classes: int = 3, n_groups: int = 5, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    predicted = np.where(rng.random(n) < 0.7, labels, rng.integers(0, n_classes, n))
    return predicted, labels, rng.integers(0, n_groups, n), rng.random((n, n_groups)) < 0.3


def examples(labels, **known) -> Examples:
    return Examples.of(torch.zeros(len(labels), 1), labels, **known)


def waterbirds(counts) -> Examples:
    groups = np.repeat(np.arange(4), counts)
    return examples(groups // 2, groups=groups, group_names=WATERBIRDS, class_names=("landbird", "waterbird"))


def test_scores_are_those_of_boolean_masks():
    predicted, labels, groups, _ = drawn()
    report = GroupReport.of_arrays(predicted, labels, groups)
    accuracies = [(predicted == labels)[groups == g].mean() for g in range(5)]
    assert [score.accuracy for score in report.by_group] == pytest.approx(accuracies)
    assert [score.count for score in report.by_group] == [(groups == g).sum() for g in range(5)]
    assert report.worst.name == f"g{np.argmin(accuracies)}"
    assert report.worst_accuracy == pytest.approx(min(accuracies))
    assert report.accuracy == pytest.approx(accuracy_score(labels, predicted))
    assert report.group_mean == pytest.approx(np.mean(accuracies))
    by_class = [(predicted == labels)[labels == c].mean() for c in range(3)]
    assert [score.accuracy for score in report.by_class] == pytest.approx(by_class)
    assert report.worst_class.name == f"y{np.argmin(by_class)}"


def test_confusion_is_scikit_learns_where_classes_are_the_groups():
    predicted, labels, _, _ = drawn()
    report = GroupReport.of_arrays(predicted, labels)
    assert report.grouping == "classes"
    assert np.array_equal(report.confusion, confusion_matrix(labels, predicted))
    assert "classes stand in" in report.notes[0]


def test_confusion_counts_predictions_within_each_group():
    predicted, labels, groups, _ = drawn()
    expected = [[((groups == g) & (predicted == c)).sum() for c in range(3)] for g in range(5)]
    assert GroupReport.of_arrays(predicted, labels, groups).confusion.tolist() == expected


def test_an_example_in_two_groups_counts_in_both():
    predicted, labels, _, member = drawn()
    report = GroupReport.of_arrays(predicted, labels, memberships=member)
    assert report.grouping == "overlapping groups"
    for g, score in enumerate(report.by_group):
        inside = member[:, g]
        assert (score.count, score.correct) == (inside.sum(), (predicted == labels)[inside].sum())
        assert report.confusion[g].tolist() == [(inside & (predicted == c)).sum() for c in range(3)]
    assert sum(score.count for score in report.by_group) > report.count
    assert report.train_mix is None


def test_civilcomments_has_sixteen_groups_and_pdes_eighteen_add_the_classes():
    """PDE's check 9.1.10: the eight tags give two groups each; an untagged example counts in none."""
    tags = torch.zeros(6, 8, dtype=torch.bool)
    tags[0, 0] = tags[0, 1] = tags[1, 0] = tags[2, 1] = tags[3, 5] = True
    labels = torch.tensor([0, 1, 0, 1, 1, 1])
    member = torch.cat([tags & (labels == 0)[:, None], tags & (labels == 1)[:, None]], dim=1)
    names = [f"{tag}/{y}" for y in ("fine", "toxic") for tag in "abcdefgh"]
    report = GroupReport.of([0, 1, 0, 1, 0, 0], examples(labels, memberships=member, group_names=names))
    assert len(report.by_group) == 16
    counted = {score.name: score.count for score in report.by_group if score.count}
    assert counted == {"a/fine": 1, "b/fine": 2, "a/toxic": 1, "f/toxic": 1}
    assert report.accuracy == pytest.approx(4 / 6)
    assert criterion(report, "worst_group") == 1.0
    assert criterion(report, "worst_group_or_class") == 0.5


def test_adjusted_average_of_waterbirds_is_ninety_five_percent():
    """PDE's check 9.1.9."""
    test, train = waterbirds(WATERBIRDS_TEST), waterbirds(WATERBIRDS_TRAIN)
    right = torch.isin(test.groups, torch.tensor([0, 3]))
    report = GroupReport.of(torch.where(right, test.labels, 1 - test.labels), test, train)
    assert [score.accuracy for score in report.by_group] == [1.0, 0.0, 0.0, 1.0]
    assert report.train_mix == pytest.approx((3498 + 1057) / 4795)
    assert f"{report.train_mix:.1%}" == "95.0%"
    assert report.averages == {"test mix": report.accuracy, "train mix": report.train_mix, "group mean": 0.5}
    assert report.accuracy == pytest.approx((2255 + 642) / 5794)
    assert report.worst.name == "landbird/water", "the first of equals"
    assert tuple(score.train_count for score in report.by_group) == WATERBIRDS_TRAIN


def test_without_groups_the_training_mix_is_that_of_the_classes():
    report = GroupReport.of([0, 1, 0], examples([0, 1, 1]), examples([0] * 9 + [1]))
    assert report.grouping == "classes"
    assert report.train_mix == pytest.approx(0.9 * 1 + 0.1 * 0.5)


def test_training_groups_are_matched_by_name_where_a_part_lacks_an_attribute_value():
    train = examples([0, 0, 1, 1, 1], attributes=[0, 1, 0, 1, 2])
    test = examples([0, 0, 1, 1], attributes=[0, 1, 0, 1])
    assert test.group_names != train.group_names
    report = GroupReport.of([0, 0, 1, 1], test, train)
    assert {score.name: (score.count, score.train_count) for score in report.by_group} == {
        "y0/a0": (1, 1),
        "y0/a1": (1, 1),
        "y1/a0": (1, 1),
        "y1/a1": (1, 1),
        "y0/a2": (0, 0),
        "y1/a2": (0, 1),
    }


def test_a_training_set_with_other_group_names_is_refused():
    with pytest.raises(DataError, match="has the groups g0, g1 and the examples have landbird/land"):
        GroupReport.of([0] * 4, waterbirds((1, 1, 1, 1)), examples([0, 1], groups=[0, 1]))


def test_a_training_set_without_groups_leaves_the_training_mix_unknown():
    report = GroupReport.of([0] * 4, waterbirds((1, 1, 1, 1)), examples([0, 1]))
    assert report.train_mix is None
    assert {score.train_count for score in report.by_group} == {None}


def test_a_group_without_examples_has_no_accuracy_and_is_never_the_worst():
    report = GroupReport.of_arrays([0, 1], [0, 0], [0, 2], group_names=["a", "b", "c"], train_counts=[3, 95, 2])
    empty = report.by_group[1]
    assert (empty.accuracy, empty.low, empty.high) == (None, None, None)
    assert report.worst.name == "c"
    assert report.group_mean == 0.5
    assert report.train_mix == pytest.approx(3 / 5)
    assert any("never the worst: b." in note for note in report.notes)


def test_small_groups_are_noted():
    assert (
        "Fewer than 10 examples, mind the interval: g1."
        in GroupReport.of_arrays([0] * 11, [0] * 11, [0] * 10 + [1]).notes
    )


def test_a_score_has_wilsons_interval_and_none_without_examples():
    score = GroupScore("g", 10, 8)
    assert (score.low, score.high) == wilson(8, 10)
    empty = GroupScore("g", 0, 0)
    assert (empty.low, empty.high) == (None, None)


@pytest.mark.parametrize("kind", ["groups", "overlapping groups", "classes"])
def test_a_report_survives_json(kind):
    predicted, labels, groups, member = drawn()
    known = {"groups": {"groups": groups}, "overlapping groups": {"memberships": member}, "classes": {}}[kind]
    report = GroupReport.of_arrays(predicted, labels, **known, train_counts=[7] * 5)
    assert report.grouping == kind
    stored = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert "outcomes" not in stored
    back = GroupReport.from_json(stored)
    assert back == report
    assert back.to_json() == report.to_json()
    assert back.outcomes is None
    full = GroupReport.from_json(json.loads(json.dumps(report.to_json(outcomes=True))))
    assert full.outcomes == report.outcomes
    assert full.outcomes is not None


def test_stored_json_says_the_numbers_that_other_readers_want():
    stored = GroupReport.of_arrays([0, 1, 1], [0, 1, 0], [0, 1, 1]).to_json()
    assert stored["worst"] == "g1"
    assert stored["worst_accuracy"] == 0.5
    assert stored["averages"] == {"test mix": pytest.approx(2 / 3), "train mix": None, "group mean": 0.75}
    assert stored["groups"][0] == {
        "name": "g0",
        "count": 1,
        "correct": 1,
        "accuracy": 1.0,
        "low": pytest.approx(0.206549, abs=1e-6),
        "high": 1.0,
        "train_count": None,
    }


@pytest.mark.parametrize("change", [lambda s: s.pop("groups"), lambda s: s.update(grouping="tribes")])
def test_json_that_is_no_report_is_refused(change):
    stored = GroupReport.of_arrays([0], [0]).to_json()
    change(stored)
    with pytest.raises(DataError, match="isn't a stored group report"):
        GroupReport.from_json(stored)


def test_the_table_shows_percents_and_highlights_the_worst_group():
    train = waterbirds(WATERBIRDS_TRAIN)
    test = waterbirds((200, 100, 50, 50))
    predicted = test.labels.clone()
    predicted[200:240] = 1
    report = GroupReport.of(predicted, test, train)
    table = report.table("ERM [test]")
    assert [row.style for row in table.rows] == [None, "bold red", None, None]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    shown = capture.get()
    assert "ERM [test]" in shown
    assert "60.0%" in shown
    assert "worst: 60.0%, landbird/water" in shown
    assert "50.2% to 69.1%" in shown
    assert "3498" in shown
    assert "average: test mix 90.0%, train mix 98.5%, group mean 90.0%" in shown


def test_names_with_brackets_are_shown_as_they_are():
    console = Console(width=100)
    with console.capture() as capture:
        console.print(GroupReport.of_arrays([0], [0], [0], group_names=["[red]x"]).table())
    assert "[red]x" in capture.get()


def test_comparison_values_are_the_plain_differences():
    predicted, labels, groups, _ = drawn()
    other = drawn(seed=1)[0]
    ours, theirs = (GroupReport.of_arrays(p, labels, groups) for p in (predicted, other))
    compared = ours.compare(theirs, seed=4)
    assert compared.accuracy.value == pytest.approx(ours.accuracy - theirs.accuracy)
    assert compared.worst.value == pytest.approx(ours.worst_accuracy - theirs.worst_accuracy)
    assert [d.value for d in compared.by_group] == pytest.approx(
        [a.accuracy - b.accuracy for a, b in zip(ours.by_group, theirs.by_group, strict=True)]
    )
    assert compared.accuracy.clear
    assert compared.accuracy.low < compared.accuracy.value < compared.accuracy.high
    back = theirs.compare(ours, seed=4)
    assert back.accuracy.value == -compared.accuracy.value


@pytest.mark.parametrize("overlapping", [False, True])
def test_paired_bootstrap_agrees_with_resampling_the_examples_one_by_one(overlapping):
    predicted, labels, groups, member = drawn(300)
    other = np.where(np.random.default_rng(2).random(300) < 0.8, predicted, labels)
    if not overlapping:
        member = groups[:, None] == np.arange(5)
    known = {"memberships": member} if overlapping else {"groups": groups}
    ours, theirs = (GroupReport.of_arrays(p, labels, **known) for p in (predicted, other))
    rng = np.random.default_rng(5)
    plain, worst = [], []
    for _ in range(2000):
        pick = rng.integers(0, 300, 300)
        right = [(p == labels)[pick] for p in (predicted, other)]
        low = [min(r[member[pick, g]].mean() for g in range(5)) for r in right]
        plain.append(right[0].mean() - right[1].mean())
        worst.append(low[0] - low[1])
    compared = ours.compare(theirs, seed=0, draws=4000)
    for got, draws in ((compared.accuracy, plain), (compared.worst, worst)):
        assert (got.low, got.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)


def test_pairing_makes_a_small_steady_gain_clear():
    labels = np.zeros(1000, dtype=int)
    theirs = (np.arange(1000) % 2).astype(int)
    ours = theirs.copy()
    ours[1:40:2] = 0
    compared = GroupReport.of_arrays(ours, labels).compare(GroupReport.of_arrays(theirs, labels))
    assert compared.accuracy.value == pytest.approx(0.02)
    assert compared.accuracy.clear
    assert compared.accuracy.high - compared.accuracy.low < 0.02, "unpaired, the interval would be 0.09 wide"


def test_a_comparison_depends_on_its_seed_only():
    predicted, labels, groups, _ = drawn()
    one, two = GroupReport.of_arrays(predicted, labels, groups), GroupReport.of_arrays(drawn(seed=3)[0], labels, groups)
    assert one.compare(two, seed=1) == one.compare(two, seed=1)
    assert one.compare(two, seed=1) != one.compare(two, seed=2)
    stored = GroupReport.from_json(one.to_json(outcomes=True))
    assert stored.compare(two, seed=1) == one.compare(two, seed=1)


def test_a_report_compared_with_itself_differs_nowhere():
    predicted, labels, groups, _ = drawn()
    report = GroupReport.of_arrays(predicted, labels, groups, group_names=["a", "b", "c", "d", "e", "empty"])
    compared = report.compare(report)
    every = [compared.accuracy, compared.worst, *compared.by_group]
    assert len(every) == 7
    assert all((d.value, d.low, d.high, d.clear) == (0, 0, 0, False) for d in every)


def test_reports_on_other_examples_are_not_compared():
    predicted, labels, groups, _ = drawn()
    report = GroupReport.of_arrays(predicted, labels, groups)
    shifted = GroupReport.of_arrays(predicted, labels, groups, ids=np.arange(500) + 1)
    regrouped = GroupReport.of_arrays(predicted, labels, groups[::-1].copy())
    renamed = GroupReport.of_arrays(predicted, labels, groups, group_names=list("abcde"))
    bare = GroupReport.of_arrays(predicted, labels, groups, keep_outcomes=False)
    for other, said in (
        (shifted, "different examples"),
        (regrouped, "in other groups"),
        (renamed, "different groups"),
        (bare, "keep_outcomes=True"),
    ):
        with pytest.raises(DataError, match=said):
            report.compare(other)


def test_examples_and_arrays_give_the_same_report():
    predicted, labels, groups, _ = drawn()
    assert GroupReport.of(torch.tensor(predicted), examples(labels, groups=groups)) == GroupReport.of_arrays(
        predicted.tolist(), labels, torch.tensor(groups)
    )


def test_a_class_that_only_the_model_knows_is_counted_as_wrong():
    report = GroupReport.of([5, 1], examples([0, 1]))
    assert report.accuracy == 0.5
    assert report.confusion.shape == (6, 6)
    assert report.by_class[5].count == 0


@pytest.mark.parametrize(
    ("predicted", "labels", "known", "said"),
    [
        ([0, 1], [0], {}, r"predictions have shape \(2,\); give one integer for each of 1 examples"),
        (np.zeros((2, 3)), [0, 1], {}, r"logits.argmax\(-1\)"),
        ([0.5, 1.0], [0, 1], {}, "predictions are of type"),
        ([0, -1], [0, 1], {}, "predictions contain -1 at position 1"),
        ([0, 1], [0, 1], {"groups": [0]}, "groups have shape"),
        ([0, 1], [0, 1], {"memberships": np.zeros((2, 3))}, "someone in a group"),
        ([0, 1], [0, 1], {"memberships": np.ones((1, 3))}, "a row per example"),
        ([0, 1], [0, 1], {"groups": [0, 1], "train_counts": [3]}, "1 training counts for 2 groups"),
        ([], [], {}, "no examples"),
    ],
)
def test_bad_input_is_named(predicted, labels, known, said):
    with pytest.raises(DataError, match=said):
        GroupReport.of_arrays(predicted, labels, **known)


def test_criteria_are_larger_for_the_better_model():
    report = GroupReport.of_arrays(
        [0, 0, 0, 1, 1, 0, 2, 0], [0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1, 0], train_counts=[1, 3]
    )
    assert criterion(report, "accuracy") == 5 / 8
    assert criterion(report, "worst_class") == 0.5
    assert criterion(report, "worst_group") == 3 / 5
    assert criterion(report, "group_mean") == pytest.approx((3 / 5 + 2 / 3) / 2)
    assert criterion(report, "train_mix") == pytest.approx(3 / 5 / 4 + 2 / 3 * 3 / 4)
    assert criterion(report, "min_class_difference") == pytest.approx(-(0.25 + 0.25 + 0) / 3)
    perfect = GroupReport.of_arrays([0, 1, 2], [0, 1, 2], [0, 1, 1], train_counts=[1, 3])
    assert all(criterion(perfect, name) > criterion(report, name) for name in CRITERIA)


def test_criteria_say_whether_they_read_groups():
    assert {name for name in CRITERIA if criterion_uses_groups(name)} == {
        "worst_group",
        "worst_group_or_class",
        "group_mean",
        "train_mix",
    }


def test_an_unknown_criterion_offers_the_nearest():
    report = GroupReport.of_arrays([0], [0])
    for ask in (lambda name: criterion(report, name), criterion_uses_groups):
        with pytest.raises(ConfigError, match=r"no criterion 'worst_groups' .* did you mean 'worst_group'"):
            ask("worst_groups")
    with pytest.raises(ConfigError, match="needs training counts"):
        criterion(report, "train_mix")


def test_long_names_of_groups_are_folded_on_a_narrow_terminal_and_never_cut():
    names = [f"Haus und Hof mit Garten/paper={value}" for value in ("blank", "ruled", "stamped")]
    report = GroupReport.of_arrays([0] * 6, [0] * 6, [0, 0, 1, 1, 2, 2], group_names=names, train_counts=[900, 8, 7])
    console = Console(width=80)
    with console.capture() as shown:
        console.print(report.table("a title"))
    cells = [line.split("│")[1] for line in shown.get().splitlines() if line.startswith("│")]
    assert "".join("".join(cells).split()) == "".join("".join(names).split())
