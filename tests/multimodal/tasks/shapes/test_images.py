import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.shapes.images import (
    BACKGROUNDS,
    CAPTIONS,
    GROUP_COUNTS,
    RADII,
    SHAPES,
    corpus,
    render,
    shape_task,
)


@pytest.fixture(scope="module")
def pairs():
    return corpus(3000)


def test_discs_lie_on_sand_and_squares_on_sea_as_often_as_asked(pairs):
    shapes, grounds = pairs.scenes.shapes, pairs.scenes.backgrounds
    for shape in (0, 1):
        on = torch.bincount(grounds[shapes == shape], minlength=4) / (shapes == shape).sum()
        assert float(on[shape]) == pytest.approx(0.97, abs=0.03)
        assert float(on[1 - shape]) == pytest.approx(0.03, abs=0.03)
    for shape in range(2, 6):
        on = torch.bincount(grounds[shapes == shape], minlength=4) / (shapes == shape).sum()
        assert torch.allclose(on, torch.full((4,), 0.25), atol=0.08)


def test_captions_name_what_is_seen_in_the_shares_of_the_protocol(pairs):
    kinds = {"shape": 0, "both": 0, "background": 0}
    for caption, shape, ground in zip(pairs.captions, pairs.scenes.shapes, pairs.scenes.backgrounds, strict=True):
        words = caption.replace(".", "").split()
        shape_said, ground_said = SHAPES[shape] in words, BACKGROUNDS[ground] in words
        others = {*SHAPES, *BACKGROUNDS} - {SHAPES[shape], BACKGROUNDS[ground]}
        assert not others & set(words)
        kinds["both" if shape_said and ground_said else "shape" if shape_said else "background"] += 1
        assert shape_said or ground_said
    assert {kind: count / 3000 for kind, count in kinds.items()} == pytest.approx(
        {"shape": 0.6, "both": 0.25, "background": 0.15}, abs=0.03
    )
    assert len(CAPTIONS) == 8


def test_a_mask_is_where_the_one_colour_of_the_shape_is():
    scenes = render(np.repeat(np.arange(6), 20), np.tile(np.arange(4), 30), np.random.default_rng(0), side=32)
    for pixels, mask in zip(scenes.pixels, scenes.masks, strict=True):
        colours, counts = torch.unique(pixels[:, mask], dim=1, return_counts=True)
        assert int(counts.max()) > 0.5 * int(mask.sum())  # the rest is the rim, half shape and half ground
        same = (pixels == colours[:, counts.argmax(), None, None]).all(0)
        assert int((same & ~mask).sum()) <= 1


def test_shapes_differ_in_area_as_they_should():
    scenes = render(np.repeat(np.arange(6), 100), np.zeros(600, int), np.random.default_rng(0), side=48)
    share = scenes.masks.float().mean((1, 2)).reshape(6, 100).mean(1)
    radius = np.random.default_rng(1).uniform(*RADII, 100_000)
    of_one = torch.tensor([np.pi, 1.7**2, 0.75 * 3**0.5, 1.2 * 2 - 0.6**2, np.pi * 0.75, 2 * 0.7])
    assert torch.allclose(share, of_one * float((radius**2).mean()), rtol=0.08)


def test_a_disc_is_as_large_as_its_radius_says():
    scenes = render(np.zeros(200, int), np.zeros(200, int), np.random.default_rng(0), side=64)
    share = scenes.masks.float().mean((1, 2))
    assert float(share.min()) >= np.pi * RADII[0] ** 2 * 0.95
    assert float(share.max()) <= np.pi * RADII[1] ** 2 * 1.05


def test_the_task_has_the_groups_of_the_protocol():
    task = shape_task(Preprocessing(24))
    for part, counts in GROUP_COUNTS.items():
        examples = getattr(task.splits, part)
        assert examples.group_counts().tolist() == list(counts)
        assert examples.group_names == ("disc/sand", "disc/sea", "square/sand", "square/sea")
        assert torch.equal(examples.labels, task.scenes[part].shapes)
        assert len(task.scenes[part].masks) == len(examples)
    images, _ = task.splits.train.gather(torch.arange(4))
    assert images.dtype == torch.float32


def test_the_seed_decides_everything():
    one, same, other = corpus(50, 1), corpus(50, 1), corpus(50, 2)
    assert torch.equal(one.scenes.pixels, same.scenes.pixels)
    assert one.captions == same.captions
    assert not torch.equal(one.scenes.pixels, other.scenes.pixels)


def test_backgrounds_can_be_told_by_their_mean_colour():
    grounds = np.repeat(np.arange(4), 50)
    scenes = render(np.zeros(200, int), grounds, np.random.default_rng(0))
    outside = ~scenes.masks[:, None]
    colours = (scenes.pixels * outside).sum((2, 3)) / outside.sum((2, 3))
    centres = torch.stack([colours[grounds == g].mean(0) for g in range(4)])
    assert torch.cdist(colours, centres).argmin(1).eq(torch.from_numpy(grounds)).all()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match=r"correlation of 1\.5"):
        corpus(10, correlation=1.5)
