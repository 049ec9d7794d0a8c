import json
from dataclasses import replace

import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from holdfast.errors import CheckpointError, ConfigError, MissingDependencyError
from holdfast.integrations.export import formats
from holdfast.integrations.export.exporting import TOLERANCE, difference_of, export_model
from holdfast.integrations.export.formats import CARD, FORMATS
from holdfast.integrations.export.tracing import random_batch
from holdfast.models import ModelSpec
from holdfast.training.model_card import InputFacts, ModelCard, input_facts
from holdfast.training.trained import TrainedModel

SHAPES = {
    "mlp": (3, 10, 10),
    "lenet5": (3, 28, 28),
    "resnet18": (3, 32, 32),
    "pocket-cnn-batchnorm": (1, 28, 28),
    "cnn-pfl": (1, 28, 28),
    "softmax": (1, 8, 8),
}
TOKENS = {"input_ids": torch.tensor([[3, 9, 0, 1]]), "attention_mask": torch.tensor([[1, 1, 0, 0]])}


class TiedText(nn.Module):
    """Named inputs in another order than the card's, one matrix under two names, and an output object."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.decoder = nn.Linear(6, 10, bias=False)
        self.decoder.weight = self.embedding.weight
        self.head = nn.Linear(10, 3)

    def forward(self, attention_mask, input_ids, labels=None):
        hidden = (self.embedding(input_ids) * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        return self.head(self.decoder(hidden))


class Given(ModelSpec):
    """A spec of a model that has no name."""

    def skeleton(self):
        return self.args["make"]()


def distilbert():
    config = DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=32, vocab_size=10, num_labels=3)
    return DistilBertForSequenceClassification(config)


def by_name(name):
    shape = SHAPES[name]
    spec = ModelSpec(name, shape, 4, seed=3)
    model = spec.skeleton().train()
    with torch.no_grad():  # running statistics that matter
        for seed in range(3):
            torch.manual_seed(seed)
            model(torch.rand(8, *shape))
    return TrainedModel(model.eval(), ModelCard((InputFacts("", "float32", shape, 0, 1),), tuple("abcd")), spec)


def of_class(make):
    model = make().eval()
    return TrainedModel(model, ModelCard(input_facts(TOKENS), tuple("abc")), Given("given", (4,), 3, {"make": make}))


MODELS = {name: (lambda name=name: by_name(name)) for name in SHAPES}
MODELS |= {"tied text": lambda: of_class(TiedText), "distilbert": lambda: of_class(distilbert)}


def own_outputs(trained, batch):
    with torch.no_grad():
        outputs = trained.model(**batch) if isinstance(batch, dict) else trained.model(batch)
    return getattr(outputs, "logits", outputs)


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_gives_the_models_outputs_for_any_number_of_examples(tmp_path, name):
    trained, out = MODELS[name](), tmp_path / "m.pt2"
    assert export_model(trained, "torch-export", out, attached={"schema.json": "ü"}) <= TOLERANCE
    extra = {CARD: "", "schema.json": ""}
    program = torch.export.load(out, extra_files=extra).module()
    for size in (1, 2, 7):
        batch = random_batch(trained.card, size, seed=9)
        found = program(**batch) if isinstance(batch, dict) else program(batch)
        torch.testing.assert_close(found, own_outputs(trained, batch), atol=1e-5, rtol=1e-5)
    assert json.loads(extra[CARD])["classes"] == list(trained.class_names)
    schema = extra["schema.json"]
    assert (schema.decode() if isinstance(schema, bytes) else schema) == "ü"
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]


@pytest.mark.parametrize("name", MODELS)
def test_an_onnx_file_gives_the_models_outputs_under_the_inputs_names(tmp_path, name):
    trained, out = MODELS[name](), tmp_path / "m.onnx"
    assert export_model(trained, "onnx", out, attached={"schema.json": "ü"}) <= TOLERANCE
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    assert {each.name for each in session.get_inputs()} == {facts.name or "inputs" for facts in trained.card.inputs}
    for size in (1, 2, 7):
        batch = random_batch(trained.card, size, seed=9)
        feed = {key: value.numpy() for key, value in (batch if isinstance(batch, dict) else {"inputs": batch}).items()}
        found = torch.from_numpy(session.run(["logits"], feed)[0])
        torch.testing.assert_close(found, own_outputs(trained, batch), atol=1e-5, rtol=1e-5)
    stored = {each.key: each.value for each in onnx.load(out).metadata_props}
    assert json.loads(stored[CARD])["inputs"][0]["dtype"] == trained.card.inputs[0].dtype
    assert stored["schema.json"] == "ü"
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("name", ["mlp", "pocket-cnn-batchnorm"])
def test_exported_weights_load_strictly_in_plain_torch(tmp_path, name):
    trained, out = by_name(name), tmp_path / "out"
    assert export_model(trained, "safetensors", out, attached={"schema.json": "{}"}) == 0
    assert sorted(path.name for path in out.iterdir()) == ["model.json", "schema.json", "weights.safetensors"]
    spec = ModelSpec.from_json(json.loads((out / "model.json").read_text()))
    assert spec == trained.spec
    model = spec.skeleton()
    model.load_state_dict(load_file(out / "weights.safetensors"), strict=True)
    batch = random_batch(trained.card, 3)
    assert torch.equal(own_outputs(replace(trained, model=model.eval()), batch), own_outputs(trained, batch))


@pytest.mark.parametrize("to", list(FORMATS))
def test_outputs_that_differ_leave_nothing_behind(tmp_path, monkeypatch, to):
    form = FORMATS[to]
    wrong = replace(form, run=lambda *given: form.run(*given) + 2 * TOLERANCE)
    monkeypatch.setitem(FORMATS, to, wrong)
    with pytest.raises(CheckpointError, match="differ from the model's by 2e-05"):
        export_model(by_name("mlp"), to, tmp_path / f"m{form.suffix}")
    assert not list(tmp_path.iterdir())


def test_a_file_that_can_not_be_run_leaves_what_was_there(tmp_path, monkeypatch):
    out = tmp_path / "m.pt2"
    out.write_bytes(b"before")

    def broken(*given):
        raise RuntimeError("no\nsuch operator")

    monkeypatch.setitem(FORMATS, "torch-export", replace(FORMATS["torch-export"], run=broken))
    with pytest.raises(CheckpointError, match=r"can't be run on 1 examples \(no such operator\)"):
        export_model(by_name("mlp"), "torch-export", out, overwrite=True)
    assert out.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 1


class LooksAtValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x) if x.sum() > 0 else -self.head(x)


class FixedBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x.view(3, 4))


@pytest.mark.parametrize("make", [LooksAtValues, FixedBatch])
@pytest.mark.parametrize("to", ["torch-export", "onnx"])
def test_a_model_that_can_not_be_traced_is_refused_with_what_can_be_done(tmp_path, make, to):
    card = ModelCard((InputFacts("", "float32", (4,), 0, 1),))
    trained = TrainedModel(make().eval(), card, Given("own", (4,), 3, {"make": make}))
    with pytest.raises(ConfigError, match=r"the model own can't be exported.*--to safetensors"):
        export_model(trained, to, tmp_path / f"m{FORMATS[to].suffix}")
    assert not list(tmp_path.iterdir())


def test_places_are_refused_before_anything_is_written(tmp_path):
    trained = by_name("softmax")
    (tmp_path / "file.onnx").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for to, out, overwrite, said in [
        ("onnx", "m.pt2", False, "should end in .onnx"),
        ("onnx", "file.onnx", False, "--overwrite"),
        ("safetensors", "file.onnx", True, "is a file"),
        ("safetensors", "folder", False, "--overwrite"),
        ("safetensors", "folder", True, "such as thesis.tex"),
        ("safetensors", "file.onnx/below", False, "can't be made"),
        ("tflite", "m", False, "there is no format 'tflite'"),
    ]:
        with pytest.raises(ConfigError, match=said):
            export_model(trained, to, tmp_path / out, overwrite=overwrite)
    assert (tmp_path / "folder" / "thesis.tex").exists() and (tmp_path / "file.onnx").read_text() == "mine"


def test_an_export_may_be_replaced(tmp_path):
    for name in ("softmax", "mlp"):
        export_model(by_name(name), "safetensors", tmp_path / "out", overwrite=True)
    assert json.loads((tmp_path / "out" / "model.json").read_text())["name"] == "mlp"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'holdfast\[onnx\]'"):
        export_model(by_name("mlp"), "onnx", tmp_path / "m.onnx")


def test_without_a_runtime_the_file_is_written_and_not_called_checked(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "onnx", replace(FORMATS["onnx"], runs_here=lambda: False))
    assert export_model(by_name("softmax"), "onnx", tmp_path / "m.onnx") is None
    assert (tmp_path / "m.onnx").exists()


def test_differences_are_a_share_of_large_outputs_and_no_number_is_never_equal():
    ones = torch.ones(2, 2)
    assert difference_of(ones, ones + 1e-3) == pytest.approx(1e-3, rel=1e-3)
    assert difference_of(1000 * ones, 1000 * ones + 1e-3) == pytest.approx(1e-6, rel=0.1)
    assert difference_of(ones * torch.nan, ones * torch.nan) == float("inf")
    assert difference_of(ones, ones[:1]) == float("inf")
