import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.poisoning.bed import rendered_shapes, shape_cnn, shape_splits
from holdfast.training import predict
from tests.poisoning.attacks.toy import splits, trained


def test_shapes_are_eight_bit_pixels_as_many_of_each_class():
    drawn = rendered_shapes(40, seed=3, classes=5)
    images, labels = drawn.gather(torch.arange(40))
    assert images.shape == (40, 3, 16, 16) and images.min() >= 0 and images.max() <= 1
    assert torch.allclose(images * 255, (images * 255).round(), atol=1e-4)
    assert torch.bincount(labels).tolist() == [8] * 5
    assert torch.equal(images, rendered_shapes(40, seed=3, classes=5).inputs.values)
    assert not torch.equal(images, rendered_shapes(40, seed=4, classes=5).inputs.values)


def test_parts_share_no_id_and_no_image():
    parts = shape_splits(40, 20, classes=4)
    ids = torch.cat([parts.train.ids, parts.validation.ids, parts.test.ids])
    assert len(torch.unique(ids)) == len(ids)
    assert not torch.equal(parts.train.inputs.values[:5], parts.test.inputs.values[:5])


def test_the_network_tells_shapes_apart():
    assert (predict(trained(), splits().test).predicted == splits().test.labels).float().mean() > 0.9


def test_a_network_depends_on_its_seed_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    one, same, other = (shape_cnn(seed, 3, width=4) for seed in (1, 1, 2))
    assert torch.equal(one.head.weight, same.head.weight) and not torch.equal(one.head.weight, other.head.weight)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(ConfigError, match="give 2 to 10"):
        rendered_shapes(5, classes=11)
