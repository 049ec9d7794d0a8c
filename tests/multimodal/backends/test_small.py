import math

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.multimodal import SmallTwoTowerModel, WordTokenizer
from tests.multimodal.toy import WORDS, small_tower

IMAGES = torch.randn(3, 3, 24, 24, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("kind", "width"), [("conv", 480), ("vit", 64)])
def test_embeddings_are_projected_features_of_unit_length(kind, width):
    tower = small_tower(kind)
    tokens = tower.tokenize(["a picture of a disc.", "look at the sea."])
    with torch.no_grad():
        features, read = tower.image_features(IMAGES), tower.text_features(tokens)
        assert features.shape == (3, width)
        assert read.shape == (2, 64)
        for embedded, raw in (
            (tower.encode_image(IMAGES), features @ tower.from_image.weight.T),
            (tower.encode_text(tokens), read @ tower.from_text.weight.T),
        ):
            assert torch.allclose(embedded, raw / raw.norm(dim=1, keepdim=True), atol=1e-6)


def test_the_text_tower_sees_words_their_order_and_no_padding():
    tower = small_tower()
    with torch.no_grad():
        one, other = tower.text_features(tower.tokenize(["disc on sand", "sand on disc"]))
        assert not torch.allclose(one, other, atol=1e-3)
        longer = WordTokenizer(WORDS.words, 20)
        tower.text_tower.positions = torch.nn.Parameter(torch.cat([tower.text_tower.positions, torch.randn(8, 64)]))
        assert torch.allclose(tower.text_features(longer(["disc on sand"]))[0], one, atol=1e-5)


def test_the_scale_starts_at_clips_and_is_cut_at_a_hundred():
    tower = small_tower()
    assert float(tower.scale().detach()) == pytest.approx(1 / 0.07)
    torch.nn.init.constant_(tower.logit_scale, 9.0)
    assert float(tower.scale().detach()) == pytest.approx(100)
    assert float(tower.logit_scale.detach()) == pytest.approx(math.log(100))
    tower.scale().backward()
    assert float(tower.logit_scale.grad) > 0


def test_modes_train_what_they_say():
    tower = small_tower()
    names = {id(parameter): name for name, parameter in tower.named_parameters()}

    def trained(mode):
        return sorted(names[id(parameter)] for parameter in tower.trained_parameters(mode))

    projections = ["from_image.weight", "from_text.weight", "log_scale"]
    assert trained("projection_strict") == trained("projection") == projections
    outside = ["text_tower.norm.bias", "text_tower.norm.weight", "text_tower.positions", "text_tower.words.weight"]
    assert trained("release") == sorted([*projections, *outside])
    assert len(trained("full")) == len(names)
    with pytest.raises(ConfigError, match=r"no part 'projektion' .*; did you mean 'projection'"):
        tower.trained_parameters("projektion")


def test_patches_must_fill_the_image():
    with pytest.raises(ConfigError, match="patches of 5 don't fill an image of 24"):
        SmallTwoTowerModel(WORDS, "vit", patch=5)


def test_the_tokenizer_knows_words_marks_the_end_and_cuts():
    words = WordTokenizer.of(["A disc, on sand!", "a Disc"], 4)
    assert words.words == ("a", "disc", "on", "sand")
    assert words.size == 7
    assert words(["disc sand", "zebra", "a disc on sand a"]).tolist() == [[4, 6, 2, 0], [1, 2, 0, 0], [3, 4, 5, 2]]
    with pytest.raises(ConfigError, match="text of 1 tokens"):
        WordTokenizer((), 1)
