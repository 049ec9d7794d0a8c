from dataclasses import replace

import pytest
import torch

from holdfast.data.inputs import TensorInputs
from holdfast.errors import ConfigError, DataError
from holdfast.multimodal import PromptClassifier, adjusted_iou, class_maps, zero_shot
from holdfast.multimodal.audit.metrics import tight_boxes
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.shapes.data import ShapesClip, rendered_attributes
from holdfast.multimodal.tasks.shapes.images import SHAPE_WORDING
from holdfast.multimodal.tasks.task import ClipTask, explanation_score, some_of_each_group
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, tiny_task

pytest.importorskip("captum")


def outlined_task(tower):
    rendered = tiny_task(tower)
    regions = {part: TensorInputs(tight_boxes(scenes.masks)) for part, scenes in rendered.scenes.items()}
    return ClipTask(rendered.splits, TWO_TEMPLATES, regions)


def test_the_score_is_the_mean_over_groups_of_every_image_s_aiou():
    tower = small_tower()
    task = outlined_task(tower)
    report = zero_shot(tower, task.wording, task.splits.test, task.splits.train)
    score = explanation_score(tower, task, report, per_group=None)
    images, labels = task.splits.test.gather(torch.arange(32))
    maps = class_maps(PromptClassifier.of(tower, TWO_TEMPLATES), images)
    each = adjusted_iou(maps, labels, task.outlined("test", torch.arange(32)))
    expected = [float(each[task.splits.test.groups == group].mean()) for group in range(4)]
    assert list(score.by_group.values()) == pytest.approx(expected)
    assert score.average == pytest.approx(sum(expected) / 4)


def test_some_of_each_group_are_of_each_group_and_drawn_by_the_seed():
    test = tiny_task(small_tower()).splits.test
    chosen = some_of_each_group(test, 3)
    assert torch.bincount(test.groups[chosen]).tolist() == [3, 3, 3, 3]
    assert len(torch.unique(chosen)) == 12
    assert torch.equal(chosen, some_of_each_group(test, 3))
    assert not torch.equal(chosen, some_of_each_group(test, 3, seed=1))
    without = replace(test, groups=None, attributes=None)
    assert torch.bincount(test.labels[some_of_each_group(without, 3)]).tolist() == [3, 3]


def test_regions_that_do_not_fit_and_parts_that_are_not_there_are_refused():
    tower = small_tower()
    splits = tiny_task(tower).splits
    with pytest.raises(DataError, match="3 objects are outlined in 32 test images"):
        ClipTask(splits, SHAPE_WORDING, {"test": TensorInputs(torch.zeros(3, 24, 24))})
    with pytest.raises(ConfigError, match="there is no part 'tst' of the data; did you mean 'test'"):
        ClipTask(splits, SHAPE_WORDING).part("tst")
    bare = replace(splits, train=replace(splits.train, attributes=None))
    with pytest.raises(DataError, match="nothing is known of what the images of shapes show"):
        ClipTask(bare, SHAPE_WORDING).known("train")


def test_the_shapes_know_their_ground_their_box_and_what_else_is_seen():
    task = ShapesClip(seed=1).load(None, Preprocessing(24, (0.5,) * 3, (0.25,) * 3))
    table = task.known("train")
    assert torch.equal(torch.from_numpy(table.column("sea")), task.splits.train.attributes)
    assert (table.column("large thing") + table.column("small thing") == 1).all()
    assert (sum(table.column(f"{colour} thing") for colour in ("red", "green", "blue")) == 1).all()
    boxes = task.outlined("test", torch.arange(5))
    assert 0.05 < float(boxes.float().mean()) < 0.5


def test_where_a_thing_is_is_said_right():
    scenes = tiny_task(small_tower()).scenes["test"]
    table = rendered_attributes(scenes)
    for row in range(8):
        columns = scenes.masks[row].any(0).nonzero().flatten().float() + 0.5
        middle = float((scenes.masks[row].sum(0) * (torch.arange(24) + 0.5)).sum() / scenes.masks[row].sum())
        assert columns.min() <= middle <= columns.max()
        assert table.column("left half")[row] == (middle < 12)


def test_pictures_undo_the_normalisation():
    preprocessing = Preprocessing(24)
    pixels = torch.rand(2, 3, 24, 24)
    assert torch.allclose(preprocessing.pictures(preprocessing.batch(pixels)), pixels, atol=1e-5)


def test_boxes_follow_the_cut_of_a_tall_image():
    """60 x 90 becomes 20 x 30, of which rows 5 to 25 remain."""
    boxes = Preprocessing(20).boxes(torch.tensor([[0.0, 15.0, 30.0, 45.0]]), 60, 90)
    assert boxes.tolist() == [pytest.approx([0, 0, 0.5, 0.5])]
