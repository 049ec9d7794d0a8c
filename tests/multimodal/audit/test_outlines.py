import pytest
import torch

from holdfast.errors import DataError
from holdfast.multimodal.audit.outlines import box_inputs, mask_inputs, read_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing
from tests.multimodal.trees import annotation, mask

SQUARE = Preprocessing(30)


def test_a_mask_goes_through_the_same_cut_as_its_image(tmp_path):
    """Of 40 x 30 pixels the middle 30 x 30 remain, so columns move by 5."""
    mask(tmp_path / "m.png", (5, 10, 20, 25))
    regions = mask_inputs([tmp_path / "m.png"], SQUARE, "mask").gather(torch.tensor([0]))[0]
    expected = torch.zeros(30, 30, dtype=torch.bool)
    expected[10:25, 0:15] = True
    assert torch.equal(regions, expected)


def test_the_box_around_a_mask_is_the_smallest(tmp_path):
    mask(tmp_path / "m.png", (10, 4, 12, 20))
    mask(tmp_path / "n.png", (30, 18, 33, 20))
    both = [mask_inputs([tmp_path / f"{name}.png"], SQUARE, "box").gather(torch.tensor([0]))[0] for name in "mn"]
    assert [int(region.sum()) for region in both] == [2 * 16, 3 * 2]


def test_boxes_are_cut_at_the_rim_and_filled_together(tmp_path):
    annotation(tmp_path / "a.xml", (40, 30), [(0, 0, 10, 30), (20, 0, 25, 10)])
    width, height, boxes = read_boxes(tmp_path / "a.xml")
    assert (width, height, len(boxes)) == (40, 30, 2)
    region = box_inputs([tmp_path / "a.xml"], SQUARE).gather(torch.tensor([0]))[0]
    expected = torch.zeros(30, 30, dtype=torch.bool)
    expected[:, 0:5] = True
    expected[0:10, 15:20] = True
    assert torch.equal(region, expected)


def test_files_that_are_missing_or_empty_are_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.xml can't be read"):
        read_boxes(tmp_path / "gone.xml")
    annotation(tmp_path / "none.xml", (40, 30), [])
    with pytest.raises(DataError, match=r"none\.xml has no size or no complete box"):
        read_boxes(tmp_path / "none.xml")
    with pytest.raises(DataError, match=r"no image .*gone\.png; fetch the segmentations"):
        mask_inputs([tmp_path / "gone.png"], SQUARE, "mask").gather(torch.tensor([0]))
