import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.multimodal import load_open_clip
from holdfast.multimodal.backends import OpenClip
from tests.multimodal.backends.open_clip_stand_in import clip, library, tokenize

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
NAMES = ["RN50", "ViT", "ViT-old"]


@pytest.fixture
def open_clip(monkeypatch):
    with torch.random.fork_rng():
        monkeypatch.setitem(sys.modules, "open_clip", library())
        yield


@pytest.mark.parametrize("name", NAMES)
def test_projected_features_are_what_the_library_computes(open_clip, name):
    tower, theirs = load_open_clip(name, "openai"), clip(name).eval()
    tokens = tower.tokenize(["disc", "sea"])
    with torch.no_grad():
        assert torch.allclose(tower.encode_image(IMAGES), F.normalize(theirs.encode_image(IMAGES), dim=1), atol=1e-5)
        assert torch.allclose(tower.encode_text(tokens), F.normalize(theirs.encode_text(tokens), dim=1), atol=1e-5)
    assert tower.image_features(IMAGES).shape == ((3, 16, 4, 4) if name == "RN50" else (3, 16))
    assert not tower.training


@pytest.mark.parametrize("name", NAMES)
def test_the_model_keeps_its_parts(open_clip, name):
    tower = load_open_clip(name, "openai")
    before = list(tower.model.state_dict())
    tower.encode_image(IMAGES)
    tower.encode_text(tower.tokenize(["disc"]))
    assert list(tower.model.state_dict()) == before == list(clip(name).state_dict())
    with pytest.raises(RuntimeError):
        tower.encode_image(IMAGES[:, :1])
    assert list(tower.model.state_dict()) == before


def test_modes_train_what_they_say(open_clip):
    for name, strict, whole in (
        ("RN50", {"visual.attnpool.c_proj.weight", "visual.attnpool.c_proj.bias"}, 9),
        ("ViT", {"visual.proj"}, 1),
    ):
        tower = load_open_clip(name, "openai")
        names = {id(parameter): path for path, parameter in tower.model.named_parameters()}

        def trained(mode, tower=tower, names=names):
            return {names[id(parameter)] for parameter in tower.trained_parameters(mode)}

        assert trained("projection_strict") == {*strict, "text_projection", "logit_scale"}
        assert len({path for path in trained("projection") if path.startswith("visual.")}) == whole
        outside = {"token_embedding.weight", "positional_embedding", "ln_final.weight", "ln_final.bias"}
        assert trained("release") - trained("projection") == outside


def test_towers_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match="towers of this Linear are not CLIP's own; give a ResNet or a ViT"):
        OpenClip(nn.Linear(2, 2), tokenize)


def test_weights_that_are_not_there_or_could_execute_code_are_refused(open_clip, tmp_path):
    with pytest.raises(ConfigError, match=r"can't load 'RN50' with weights 'laion' .*list_pretrained"):
        load_open_clip("RN50", "laion")
    (tmp_path / "weights.pt").write_bytes(b"")
    with pytest.raises(ConfigError, match="could execute code"):
        load_open_clip("RN50", tmp_path / "weights.pt")


def test_without_open_clip_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[open-clip\]"):
        load_open_clip("RN50", "openai")
