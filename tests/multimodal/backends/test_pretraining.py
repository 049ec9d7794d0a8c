import pytest
import torch

from holdfast.data.transforms import Normalise
from holdfast.errors import DataError
from holdfast.multimodal import pretrain
from holdfast.multimodal.tasks.shapes.images import corpus
from tests.multimodal.toy import small_tower


@pytest.mark.parametrize("kind", ["conv", "vit"])
def test_pairs_find_each_other_better_with_every_epoch(kind):
    tower, pairs = small_tower(kind), corpus(128)
    images = Normalise(tower.preprocessing.mean, tower.preprocessing.std)(pairs.scenes.pixels)
    events = []
    losses = pretrain(
        tower, images, pairs.captions, epochs=4, batch_size=32, progress=lambda *event: events.append(event)
    )
    assert losses[-1] < losses[0] - 0.2
    assert events == list(enumerate(losses))
    assert not tower.training
    again = small_tower(kind)
    assert pretrain(again, images, pairs.captions, epochs=4, batch_size=32) == losses
    assert torch.equal(again.from_image.weight, tower.from_image.weight)


def test_captions_must_fit():
    with pytest.raises(DataError, match="4 images and 3 captions for batches of 128"):
        pretrain(small_tower(), torch.zeros(4, 3, 24, 24), ["a"] * 3)
