"""``hf:`` with tiny folders that the tests make; ``timm:`` behind a stand-in, because timm needs torchvision."""

import json
import logging
import socket
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from holdfast.data import reachable as reaching
from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.models import ModelSpec, find_head
from holdfast.models.first_pass import check_outputs, look_for_head
from tests.models.test_registry import same

TOKENS = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
IMAGES = torch.rand(2, 3, 8, 8)


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    """A masked language model, which has no head for classes and, as published ones, no pooler."""
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=16)
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vit(transformers, tmp_path_factory):
    """An image classifier for five classes."""
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5)
    folder = tmp_path_factory.mktemp("vit")
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    return folder


def test_texts_get_a_sequence_classifier_with_the_encoders_weights_and_a_head_by_the_seed(bert, transformers):
    spec = ModelSpec(f"hf:{bert}", (3,), 3, seed=1)
    model, again, other = spec.build(), spec.build(), ModelSpec(spec.name, (3,), 3, seed=2).build()
    theirs = transformers.BertForMaskedLM.from_pretrained(bert).bert.state_dict()
    assert all(torch.equal(value, model.bert.state_dict()[key]) for key, value in theirs.items())
    assert same(model, again)
    assert not torch.equal(model.classifier.weight, other.classifier.weight)
    assert model.training and type(model).__name__ == "BertForSequenceClassification"
    check_outputs(model, TOKENS, 3, spec.name)
    assert look_for_head(model, TOKENS).name == "classifier"


def test_images_get_an_image_classifier_whose_head_is_kept_where_it_fits(vit, caplog):
    fits = ModelSpec(f"hf:{vit}", (3, 8, 8), 5, seed=1).build()
    assert same(fits, ModelSpec(f"hf:{vit}", (3, 8, 8), 5, seed=2).build())
    with caplog.at_level(logging.INFO, "holdfast"):
        other = ModelSpec(f"hf:{vit}", (3, 8, 8), 2).build()
    assert "classifier.weight: they start at random" in caplog.text
    assert check_outputs(other, IMAGES, 2, "it").shape == (2, 2)
    assert find_head(other)[0] == "classifier"


def test_arguments_change_the_configuration(bert):
    model = ModelSpec(f"hf:{bert}", (3,), 2, {"hidden_dropout_prob": 0.75}).build()
    assert model.dropout.p == 0.75
    with pytest.raises(ConfigError, match=r"configuration of hf:.* has no 'hidden_dropout'; did you mean 'hidden_drop"):
        ModelSpec(f"hf:{bert}", (3,), 2, {"hidden_dropout": 0.5}).build()


def test_a_skeleton_needs_the_configuration_only(bert, tmp_path):
    (tmp_path / "config.json").write_bytes((bert / "config.json").read_bytes())
    spec = ModelSpec(f"hf:{tmp_path}", (3,), 2)
    skeleton = spec.skeleton()
    skeleton.load_state_dict(ModelSpec(f"hf:{bert}", (3,), 2).build().state_dict())
    with pytest.raises(ConfigError, match="can't be loaded"):
        spec.build()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 4), "texts, of shape .* or images"),
        ((17,), "at most 16 tokens and was given 17"),
        ((3, 8, 8), "can't be loaded"),
    ],
)
def test_inputs_that_the_model_does_not_read_are_a_sentence(bert, shape, message):
    with pytest.raises(ConfigError, match=message):
        ModelSpec(f"hf:{bert}", shape, 2).build()


def test_images_of_other_channels_are_a_sentence(vit):
    with pytest.raises(ConfigError, match="takes images of 3 channels and was given 1"):
        ModelSpec(f"hf:{vit}", (1, 8, 8), 2).build()


def test_weights_that_lack_the_encoder_are_refused(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    tensors = load_file(bert / "model.safetensors")
    some = {key: value for key, value in tensors.items() if "layer.0" not in key}
    save_file(some, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((bert / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"doesn't fit hf:.* tensors are missing"):
        ModelSpec(f"hf:{tmp_path}", (3,), 2).build()


def test_pickled_weights_and_code_of_a_model_are_never_run(bert, tmp_path):
    torch.save({}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_bytes((bert / "config.json").read_bytes())
    with pytest.raises(ConfigError, match="can't be loaded"):
        ModelSpec(f"hf:{tmp_path}", (3,), 2).build()
    config = json.loads((bert / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(ConfigError, match="can't be loaded"):
        ModelSpec(f"hf:{tmp_path}", (3,), 2).build()


@pytest.mark.parametrize("name", ["", "./nothing", "/nothing/at/all", "a/b/c"])
def test_a_folder_that_is_not_there_is_a_sentence_before_anything_is_asked(name, transformers, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("asked the network"))
    with pytest.raises(ConfigError, match="there is no folder"):
        ModelSpec(f"hf:{name}", (3,), 2).build()


def test_without_a_network_there_is_one_short_try_and_a_sentence(transformers, monkeypatch):
    tries = []

    def refuse(address, timeout):
        tries.append(timeout)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(reaching, "getproxies", dict)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"retried after {seconds} s"))
    with pytest.raises(ConfigError, match=r"'nobody/nothing' can't be loaded .* connect to the network once, or give"):
        ModelSpec("hf:nobody/nothing", (3,), 2).build()
    assert tries == [5.0]


@pytest.mark.parametrize(
    ("reachable", "proxies", "local"), [(True, {}, False), (False, {}, True), (False, {"https": "x"}, False)]
)
def test_only_where_the_hub_cannot_be_reached_is_the_library_kept_to_its_cache(
    transformers, monkeypatch, reachable, proxies, local
):
    asked = []

    def connect(address, timeout):
        if not reachable:
            raise TimeoutError
        return SimpleNamespace(close=lambda: None)

    def configuration(source, **options):
        asked.append(options["local_files_only"])
        raise OSError("not to be had")

    monkeypatch.setattr(reaching, "getproxies", lambda: proxies)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", configuration)
    with pytest.raises(ConfigError, match="not to be had"):
        ModelSpec("hf:nobody/nothing", (3,), 2).build()
    assert asked == [local]


@pytest.fixture
def timm(monkeypatch):
    """What we use of timm, with its signatures."""
    calls = []

    def create_model(model_name, pretrained=False, checkpoint_path="", **kwargs):
        calls.append((model_name, pretrained, kwargs))
        return nn.Sequential(nn.Conv2d(kwargs["in_chans"], 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(4, kwargs["num_classes"])).eval()  # fmt: skip

    names = ["resnet18", "vit_tiny_patch16_224"]
    stand_in = SimpleNamespace(create_model=create_model, is_model=names.__contains__, list_models=lambda: names)
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    return calls


def test_a_network_of_timm_starts_at_random_unless_it_is_asked_for_its_weights(timm):
    spec = ModelSpec("timm:resnet18", (1, 8, 8), 4, {"drop_rate": 0.1}, seed=3)
    model = spec.build()
    assert same(model, spec.build()) and model.training
    assert timm[0] == ("resnet18", False, {"num_classes": 4, "in_chans": 1, "drop_rate": 0.1})
    asked = ModelSpec("timm:resnet18", (1, 8, 8), 4, {"pretrained": True})
    asked.build()
    asked.skeleton()
    assert [called[1] for called in timm[2:]] == [True, False]


@pytest.mark.parametrize(
    ("name", "shape", "args", "message"),
    [
        ("resnet19", (3, 8, 8), {}, "timm has no network 'resnet19'; did you mean 'resnet18'"),
        ("resnet18", (12,), {}, r"timm:resnet18 takes inputs of shape \(channels, height, width\)"),
        ("resnet18", (3, 8, 8), {"checkpoint_path": "evil.pth"}, "takes no checkpoint_path; give a file of weights"),
        ("resnet18", (3, 8, 8), {"pretrained_cfg_overlay": {"file": "evil.pth"}}, "takes no pretrained_cfg_overlay"),
    ],
)
def test_what_timm_does_not_have_is_a_sentence(timm, name, shape, args, message):
    with pytest.raises(ConfigError, match=message):
        ModelSpec(f"timm:{name}", shape, 2, args).build()


@pytest.mark.parametrize(("name", "extra"), [("timm:resnet18", "timm"), ("hf:x", "transformers")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(MissingDependencyError, match=rf"{name} needs .*{extra}.*pip install 'holdfast\[{extra}\]'"):
        ModelSpec(name, (3, 8, 8), 2).build()
