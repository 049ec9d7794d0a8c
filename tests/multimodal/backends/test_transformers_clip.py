import json
import sys

import pytest
import torch

from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.multimodal import load_clip
from holdfast.multimodal.backends.preprocessing import CLIP_MEAN, Preprocessing
from tests.multimodal.backends.hub import clip_config, save_clip, save_tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = ["a photo of a disc", "sea", "a very long sentence about squares"]
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    save_clip(folder)
    return folder


def test_a_folder_gives_what_the_library_computes(folder):
    tower, theirs = load_clip(folder), transformers.CLIPModel.from_pretrained(folder).eval()
    batch = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(pixel_values=IMAGES, **batch)
        images, texts = tower.encode_image(IMAGES), tower.encode_text(tower.tokenize(TEXTS))
        assert torch.allclose(images, expected.image_embeds, atol=1e-5)
        assert torch.allclose(texts, expected.text_embeds, atol=1e-5)
        assert torch.allclose(tower.scale() * images @ texts.T, expected.logits_per_image, atol=1e-4)
    assert not tower.training


def test_tokens_are_the_librarys_ids_padded_to_the_models_length(folder):
    tower = load_clip(folder)
    tokens = tower.tokenize(["sea"])
    ids = transformers.AutoTokenizer.from_pretrained(folder)(["sea"])["input_ids"][0]
    assert tokens.shape == (1, 16)
    assert tokens[0, : len(ids)].tolist() == ids


def test_modes_train_what_they_say(folder):
    tower = load_clip(folder)
    names = {id(parameter): name for name, parameter in tower.named_parameters()}

    def trained(mode):
        return {names[id(parameter)] for parameter in tower.trained_parameters(mode)}

    projections = {"model.visual_projection.weight", "model.text_projection.weight", "model.logit_scale"}
    assert trained("projection") == trained("projection_strict") == projections
    assert {name.rpartition(".")[0] for name in trained("release") - projections} == {
        "model.text_model.embeddings.token_embedding",
        "model.text_model.embeddings.position_embedding",
        "model.text_model.final_layer_norm",
    }


def test_images_are_prepared_as_the_folder_says_or_as_clip_does(folder, tmp_path):
    assert load_clip(folder).preprocessing == Preprocessing(32)
    assert load_clip(folder).preprocessing.mean == CLIP_MEAN
    save_clip(tmp_path)
    said = {"image_processor_type": "CLIPImageProcessor", "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    assert load_clip(tmp_path).preprocessing == Preprocessing(32, (0.5,) * 3, (0.25,) * 3)


def test_half_precision_becomes_single(tmp_path):
    """The release steps half-precision weights directly."""
    save_clip(tmp_path, dtype=torch.float16)
    assert {parameter.dtype for parameter in load_clip(tmp_path).parameters()} == {torch.float32}


def test_weights_that_cannot_be_fetched_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"'openai/clip-vit-base-patch32' can't be loaded .* or give a folder"):
        load_clip("openai/clip-vit-base-patch32")


def test_the_weights_of_another_network_are_refused(tmp_path):
    transformers.CLIPVisionModel(clip_config().vision_config).save_pretrained(tmp_path)
    clip_config().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match=r"doesn't fit CLIPModel: .* tensors are missing"):
        load_clip(tmp_path)


def test_files_that_could_execute_code_are_not_read(tmp_path):
    model = save_clip(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="can't be loaded"):
        load_clip(tmp_path)


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[multimodal\]"):
        load_clip("anything")
