import pytest
import torch

from holdfast.errors import DataError
from holdfast.spurious.group_inference.quality import best_epoch, judge_groups

#: Tables 9.11 and 9.12: (class, attribute) -> (up-weighted, down-weighted) by SPARE.
WATERBIRDS = {(0, 0): (67, 3431), (0, 1): (139, 45), (1, 0): (50, 6), (1, 1): (126, 931)}
CELEBA = {(0, 0): (61568, 10061), (0, 1): (5440, 61434), (1, 0): (1745, 21135), (1, 1): (1130, 257)}


def judged(audit, majority=None):
    rows = torch.tensor(
        [
            (label, attribute, cluster, n)
            for (label, attribute), counts in audit.items()
            for cluster, n in enumerate(counts)
        ]
    )
    labels, attributes, clusters = (column.repeat_interleave(rows[:, 3]) for column in rows.T[:3])
    return judge_groups(clusters, labels, attributes, majority)


def test_the_waterbirds_audit_gives_the_quoted_fractions():
    result = judged(WATERBIRDS)
    assert result.classes[0].recall == 139 / 184 == pytest.approx(0.755, abs=5e-4)
    assert result.classes[1].recall == 50 / 56 == pytest.approx(0.893, abs=5e-4)
    assert result.classes[0].precision == 139 / 206 == pytest.approx(0.675, abs=5e-4)
    assert result.classes[1].precision == 50 / 176 == pytest.approx(0.284, abs=5e-4)
    assert result.min_recall == 139 / 184
    assert result.mean_recall == pytest.approx((139 / 184 + 50 / 56) / 2)
    assert result.min_precision == 50 / 176
    assert result.mean_precision == pytest.approx((139 / 206 + 50 / 176) / 2)
    assert result.accuracy == (139 + 3431 + 50 + 931) / 4795
    assert result.separation == 139 / 184
    assert result.confusion.tolist() == [[67, 3431, 0, 0], [139, 45, 0, 0], [0, 0, 50, 6], [0, 0, 126, 931]]
    assert result.true_groups == ((0, 0), (0, 1), (1, 0), (1, 1)) == result.inferred_groups


def test_the_celeba_audit_gives_the_quoted_fractions_and_takes_a_named_majority():
    by_counts, by_text = judged(CELEBA), judged(CELEBA, {0: 1, 1: 0})
    for result in (by_counts, by_text):
        assert result.classes[1].recall == 1130 / 1387 == pytest.approx(0.815, abs=5e-4)
        assert result.classes[1].precision == 1130 / 2875 == pytest.approx(0.393, abs=5e-4)
    assert by_counts.classes[0].majority == 0
    assert by_counts.classes[0].recall == 5440 / 66874
    assert by_text.classes[0].majority == 1
    assert by_text.classes[0].recall == 61568 / 71629


def test_several_minorities_count_together():
    attributes = torch.tensor([0] * 6 + [1, 1, 2])
    clusters = torch.tensor([5] * 6 + [9, 3, 5])
    result = judge_groups(clusters, torch.zeros(9, dtype=torch.int64), attributes)
    assert (result.classes[0].precision, result.classes[0].recall) == (1, 2 / 3)
    assert result.confusion.tolist() == [[0, 6, 0], [1, 0, 1], [0, 1, 0]]


def test_a_split_of_the_whole_set_is_cut_along_the_classes():
    labels = torch.tensor([1] * 5 + [0] * 5)
    attributes = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0, 0, 1])
    globally = attributes  # one side is the majority of class 1, the other that of class 0
    result = judge_groups(globally, labels, attributes)
    assert [result.classes[c].recall for c in (0, 1)] == [1, 1]
    assert result.accuracy == 1
    assert result.inferred_groups == ((0, 0), (0, 1), (1, 0), (1, 1))


def test_order_and_names_of_clusters_do_not_matter():
    generator = torch.Generator().manual_seed(0)
    labels, attributes, clusters = (torch.randint(3, (200,), generator=generator) for _ in range(3))
    expected = judge_groups(clusters, labels, attributes)
    order = torch.randperm(200, generator=generator)
    again = judge_groups(torch.tensor([7, -2, 4])[clusters[order]], labels[order], attributes[order])
    assert {c: again.classes[c] for c in again.classes} == expected.classes


def test_a_class_without_minority_has_no_recall_and_one_without_clusters_no_precision():
    nothing_to_find = judge_groups(torch.zeros(4).long(), torch.zeros(4).long(), torch.zeros(4).long())
    assert (nothing_to_find.min_recall, nothing_to_find.mean_precision) == (None, None)
    assert nothing_to_find.separation == 1
    nothing_found = judge_groups(torch.zeros(4).long(), torch.zeros(4).long(), torch.tensor([0, 0, 0, 1]))
    assert (nothing_found.min_recall, nothing_found.min_precision) == (0, 0)


def test_a_split_majority_does_not_win_by_the_recall_of_minorities():
    """Spec 2.3: recall 1 at precision .03 and majority recall .67 against .95 at precision 1."""
    split = judged({(0, 0): (330, 670), (0, 1): (10, 0)})
    healthy = judged({(0, 0): (0, 1000), (0, 1): (19, 1)})
    assert split.min_recall > healthy.min_recall
    assert split.min_precision == pytest.approx(0.03, abs=0.003)
    assert best_epoch({1: split.rank, 2: healthy.rank}) == 2


def test_ties_go_to_the_higher_precision_and_then_to_the_earlier_epoch():
    vague = judged({(0, 0): (50, 50), (0, 1): (5, 5)})
    sharp = judged({(0, 0): (1, 99), (0, 1): (5, 5)})
    assert vague.separation == sharp.separation == 0.5
    assert best_epoch({1: vague.rank, 3: sharp.rank, 2: sharp.rank}) == 2


def test_what_cannot_be_judged_is_refused():
    two = torch.tensor([0, 1])
    with pytest.raises(DataError, match="2 clusters, 2 labels and 1 attributes"):
        judge_groups(two, two, two[:1])
    with pytest.raises(DataError, match="majority attribute of class 1 is missing"):
        judge_groups(two, two, two, {0: 0})
    with pytest.raises(DataError, match="no epoch was judged"):
        best_epoch({})
