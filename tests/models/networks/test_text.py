import logging
import sys
from pathlib import Path

import pytest
import torch

from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.models import build, distilbert, features_and_logits, find_head

transformers = pytest.importorskip("transformers")

NAME = "distilbert-base-uncased"
BATCH = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}


def tiny_config(**changes: int) -> "transformers.DistilBertConfig":
    sizes = {"vocab_size": 20, "dim": 8, "hidden_dim": 16, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 16}
    return transformers.DistilBertConfig(**(sizes | changes))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model in the hub's form, as the published encoder is, with two layers of eight."""
    folder = tmp_path_factory.mktemp("published")
    transformers.DistilBertForMaskedLM(tiny_config()).save_pretrained(folder)
    return folder


def encoder_of(folder: Path) -> dict[str, torch.Tensor]:
    return transformers.DistilBertForMaskedLM.from_pretrained(folder).distilbert.state_dict()


def test_it_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = distilbert((300,), 2)
    assert sum(parameter.numel() for parameter in model.parameters()) == 66_955_010


def test_a_folder_gives_the_encoder_and_the_seed_gives_the_head(published: Path):
    torch.manual_seed(7)
    model = build(NAME, (3,), 3, seed=1, weights=published)
    again = build(NAME, (3,), 3, seed=1, weights=str(published))
    other = build(NAME, (3,), 3, seed=2, weights=published)
    for key, value in encoder_of(published).items():
        assert torch.equal(model.distilbert.state_dict()[key], value)
    for layer in ("pre_classifier", "classifier"):
        assert torch.equal(getattr(model, layer).weight, getattr(again, layer).weight)
        assert not torch.equal(getattr(model, layer).weight, getattr(other, layer).weight)
    assert model.training
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(7)))


def test_logits_are_the_head_on_the_features(published: Path):
    model = build(NAME, (3,), 3, weights=published).eval()
    assert find_head(model)[0] == "classifier"
    features, logits = features_and_logits(model, BATCH, verify=True)
    assert features.shape == (2, 8)
    assert logits.shape == (2, 3)


def test_padding_changes_nothing(published: Path):
    model = build(NAME, (3,), 2, weights=published).eval()
    short = {name: part[1:, :2] for name, part in BATCH.items()}
    with torch.no_grad():
        torch.testing.assert_close(model(**BATCH).logits[1:], model(**short).logits)


def test_the_hubs_weights_are_taken_from_the_data_root_where_they_are(published: Path, tmp_path: Path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / NAME).symlink_to(published)
    model = build(NAME, (3,), 2, weights="hub", root=tmp_path)
    assert torch.equal(
        model.distilbert.embeddings.word_embeddings.weight, encoder_of(published)["embeddings.word_embeddings.weight"]
    )


def test_weights_that_cannot_be_fetched_say_what_to_do(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"'{NAME}' can't be loaded \(.*\); connect .* or give a folder with config"):
        build(NAME, (3,), 2, weights="hub", root=tmp_path)
    with pytest.raises(ConfigError, match=r"can't be loaded"):
        build(NAME, (3,), 2, weights=tmp_path)


def test_a_classifier_for_other_classes_gets_a_new_head_which_is_logged(published: Path, tmp_path: Path, caplog):
    build(NAME, (3,), 3, weights=published).save_pretrained(tmp_path)
    with caplog.at_level(logging.INFO, "holdfast"):
        model = build(NAME, (3,), 2, weights=tmp_path)
    assert model.classifier.out_features == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} has no weights for classifier.bias, classifier.weight: they start at random"
    ]


def test_weights_in_half_precision_become_single(published: Path, tmp_path: Path):
    build(NAME, (3,), 2, weights=published).half().save_pretrained(tmp_path)
    assert {p.dtype for p in build(NAME, (3,), 2, weights=tmp_path).parameters()} == {torch.float32}


def test_the_weights_of_another_network_are_refused(tmp_path: Path):
    transformers.DistilBertModel(tiny_config(n_layers=1)).save_pretrained(tmp_path)
    tiny_config(n_layers=2).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"16 tensors are missing .* distilbert\.transformer\.layer\.1"):
        build(NAME, (3,), 2, weights=tmp_path)


def test_files_that_could_execute_code_are_not_read(published: Path, tmp_path: Path):
    model = build(NAME, (3,), 2, weights=published)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="safetensors"):
        build(NAME, (3,), 2, weights=tmp_path)


def test_too_many_tokens_are_refused(published: Path):
    with pytest.raises(ConfigError, match="at most 16 tokens and was given 17; lower max_tokens"):
        build(NAME, (17,), 2, weights=published)
    with pytest.raises(ConfigError, match=r"takes inputs of shape \(tokens\) and was given \(3, 32, 32\)"):
        build(NAME, (3, 32, 32), 2)


def test_transformers_speaks_as_loudly_as_before(published: Path):
    before = transformers.utils.logging.get_verbosity()
    build(NAME, (3,), 2, weights=published)
    assert transformers.utils.logging.get_verbosity() == before


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[transformers\]"):
        build(NAME, (3,), 2)
