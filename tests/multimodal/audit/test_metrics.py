import pytest
import torch

from holdfast.errors import DataError
from holdfast.multimodal.audit.metrics import (
    ExplanationScore,
    adjusted_average,
    adjusted_iou,
    filled_boxes,
    soft_iou,
    tight_boxes,
)
from holdfast.training import GroupReport

WATERBIRDS = [3498, 184, 56, 1057]
GROUPS = ("LB-L", "LB-W", "WB-L", "WB-W")

#: Table 9.18: average and worst AIoU as printed, then the groups. ERM's average is printed .514, a digit swap.
ABLATION = {
    "lc+vc+vs+ls": (0.550, 0.281, 0.244, 0.281, 0.852, 0.823),
    "lc+vc+vs": (0.654, 0.587, 0.601, 0.587, 0.714, 0.715),
    "lc+vc+ls": (0.628, 0.499, 0.460, 0.499, 0.788, 0.764),
    "lc+vs": (0.525, 0.310, 0.329, 0.310, 0.762, 0.697),
    "lc+ls": (0.608, 0.493, 0.446, 0.493, 0.776, 0.719),
    "vc+vs": (0.609, 0.461, 0.441, 0.461, 0.768, 0.763),
    "pre-trained": (0.507, 0.479, 0.471, 0.479, 0.541, 0.537),
    "fine-tuned CLIP": (0.510, 0.128, 0.098, 0.128, 0.929, 0.885),
    "ERM": (0.541, 0.139, 0.187, 0.139, 0.920, 0.919),
    "GroupDRO": (0.509, 0.274, 0.219, 0.274, 0.800, 0.741),
}


@pytest.mark.parametrize(
    ("accuracies", "printed"), [((93.44, 44.92, 59.03, 91.59), 90.8), ((99.29, 90.20, 33.96, 55.61), 88.5)]
)
def test_table_7_2_gives_the_printed_adjusted_average(accuracies, printed):
    assert adjusted_average(accuracies, WATERBIRDS) == pytest.approx(printed, abs=0.05)


def test_the_adjusted_average_is_the_train_mix_of_a_report():
    labels, predicted = torch.arange(40) % 2, (torch.arange(40) % 7) % 2
    groups = labels * 2 + (torch.arange(40) // 2) % 2
    report = GroupReport.of_arrays(predicted, labels, groups, train_counts=WATERBIRDS)
    accuracies = [score.accuracy for score in report.by_group]
    assert report.train_mix == pytest.approx(adjusted_average(accuracies, WATERBIRDS), abs=1e-12)


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="2 accuracies and 3 training counts"):
        adjusted_average([1.0, 0.5], [1, 2, 3])


@pytest.mark.parametrize("row", ABLATION)
def test_table_9_18_is_the_mean_over_groups_and_the_value_of_the_least_accurate_one(row):
    average, worst, *groups = ABLATION[row]
    score = ExplanationScore(dict(zip(GROUPS, groups, strict=True)), "LB-W")
    assert score.average == pytest.approx(average, abs=0.001)
    assert score.worst == pytest.approx(worst, abs=0.001)


def test_the_worst_group_is_that_of_the_report_and_not_the_lowest_aiou():
    labels = torch.tensor([0] * 10 + [1] * 10)
    predicted = torch.tensor([0] * 9 + [1] + [0] * 5 + [1] * 5)
    report = GroupReport.of_arrays(predicted, labels, labels, group_names=["land", "water"])
    aiou, groups = torch.tensor([0.1, 0.3, 0.8, 0.6]), torch.tensor([0, 0, 1, 1])
    score = ExplanationScore.of(aiou, groups, report)
    assert score.by_group == pytest.approx({"land": 0.2, "water": 0.7})
    assert (score.worst_group, score.worst, score.average) == ("water", pytest.approx(0.7), pytest.approx(0.45))
    with pytest.raises(DataError, match="no example of the worst group, water"):
        ExplanationScore.of(aiou[:2], groups[:2], report)


@pytest.fixture
def region():
    box = torch.zeros(1, 6, 8)
    box[:, 1:4, 2:7] = 1
    return box


def test_iou_is_the_sum_of_minima_over_the_sum_of_maxima(region):
    maps = torch.rand(1, 6, 8, generator=torch.Generator().manual_seed(0))
    low = sum(min(m, b) for m, b in zip(maps.flatten().tolist(), region.flatten().tolist(), strict=True))
    high = sum(max(m, b) for m, b in zip(maps.flatten().tolist(), region.flatten().tolist(), strict=True))
    assert float(soft_iou(maps, region)) == pytest.approx(low / high, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_iou_of_a_faded_region_is_the_fading(region, alpha):
    assert float(soft_iou(alpha * region, region)) == pytest.approx(alpha, abs=1e-6)


def test_iou_of_a_full_map_is_the_share_of_the_region_and_of_nothing_is_zero(region):
    assert float(soft_iou(torch.ones(1, 6, 8), region)) == pytest.approx(15 / 48)
    assert float(soft_iou(torch.zeros(1, 6, 8), torch.zeros(1, 6, 8))) == 0


def test_aiou_of_known_maps(region):
    nothing = torch.zeros_like(region)
    labels = torch.tensor([0])

    def aiou(*maps):
        return float(adjusted_iou(torch.stack(maps, 1), labels, region))

    assert aiou(region, nothing) == 1
    assert aiou(nothing, region) == 0
    assert aiou(region, region) == 0.5
    assert aiou(nothing, nothing) == 0
    assert aiou(region, 0.5 * region, 0.25 * region) == pytest.approx(1 / 1.5)


def test_aiou_of_two_classes_on_one_box_adds_up_to_one():
    generator = torch.Generator().manual_seed(1)
    maps, regions = torch.rand(5, 2, 6, 6, generator=generator), torch.rand(5, 6, 6, generator=generator) > 0.5
    both = adjusted_iou(maps, torch.zeros(5, dtype=int), regions) + adjusted_iou(
        maps, torch.ones(5, dtype=int), regions
    )
    assert torch.allclose(both, torch.ones(5))


def test_aiou_needs_two_classes_and_shapes_that_fit(region):
    with pytest.raises(DataError, match="AIoU compares classes and there is one"):
        adjusted_iou(region.unsqueeze(1), torch.tensor([0]), region)
    with pytest.raises(DataError, match=r"regions \(1, 8, 6\)"):
        adjusted_iou(region.unsqueeze(1), torch.tensor([0]), region.transpose(1, 2))


def test_tight_boxes_span_their_masks():
    masks = torch.rand(20, 7, 9, generator=torch.Generator().manual_seed(2)) > 0.9
    masks[0] = False
    for mask, box in zip(masks, tight_boxes(masks), strict=True):
        rows, columns = mask.nonzero(as_tuple=True)
        expected = torch.zeros(7, 9, dtype=torch.bool)
        if len(rows):
            expected[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
        assert torch.equal(box, expected)


def test_boxes_are_filled_in_the_frame_of_the_map(region):
    box = torch.tensor([[2 / 8, 1 / 6, 7 / 8, 4 / 6], [0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5]])
    filled = filled_boxes(box, (6, 8))
    assert torch.equal(filled[:1].float(), region)
    assert filled[1].all()
    assert not filled[2].any()
