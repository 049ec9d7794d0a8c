import json

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from holdfast.cli.main import main
from holdfast.data import load, load_federation
from holdfast.models import MODELS


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that DFR finished, and a federation with personal models."""
    folder = tmp_path_factory.mktemp("runs")
    fitted = ["fit", "--epochs", "1", "--batch-size", "256", "--threads", "1", "--method", "dfr-val"]
    assert main([*fitted, "--out", str(folder / "dfr")]) == 0
    federated = ["federate", "--rounds", "4", "--cohort", "30", "--executor", "serial", "--finetuning.epochs", "2"]
    assert main([*federated, "--personalize", "finetuning", "--out", str(folder / "federation")]) == 0
    return folder


@pytest.fixture(autouse=True)
def empty(somewhere_else):
    """In an empty folder."""


def test_what_dfr_left_is_what_each_format_gives(runs, capsys):
    run = str(runs / "dfr")
    for to, out in [("safetensors", "folder"), ("torch-export", "m.pt2"), ("onnx", "m.onnx")]:
        assert main(["export", run, "--to", to, "--out", out]) == 0
        shown = capsys.readouterr().out
        assert "It takes float32 of shape (batch, 3, 10, 10) with values from 0 to 1 in training" in shown
        assert "outputs equal the model's to" in shown and "It gives logits of 0-4, 5-9." in shown
    test = load("coloured-digits").test
    inputs, labels = test.gather(torch.arange(len(test)))
    model = MODELS["mlp"]((3, 10, 10), 2)
    model.load_state_dict(load_file("folder/weights.safetensors"))
    with torch.no_grad():
        outputs = {
            "safetensors": model.eval()(inputs).numpy(),
            "torch-export": torch.export.load("m.pt2").module()(inputs).numpy(),
            "onnx": onnxruntime.InferenceSession("m.onnx").run(None, {"inputs": inputs.numpy()})[0],
        }
    results = json.loads((runs / "dfr" / "results.json").read_text())
    for name, logits in outputs.items():
        np.testing.assert_allclose(logits, outputs["safetensors"], atol=1e-5, err_msg=name)
        assert (logits.argmax(1) == labels.numpy()).mean() == pytest.approx(results["test"]["averages"]["test mix"])
    with safe_open("folder/weights.safetensors", framework="pt") as file:
        assert "model.json beside this file says which model" in file.metadata()["usage"]


def test_a_clients_model_is_exported_and_is_not_the_shared_one(runs, tmp_path, capsys):
    run = str(runs / "federation")
    assert main(["export", run]) == 0
    assert main(["export", run, "--client", "7"]) == 0
    shared, own = (
        load_file(runs / "federation" / "export" / name / "weights.safetensors") for name in ("safetensors", "7")
    )
    assert shared.keys() == own.keys() and any(not torch.equal(shared[name], own[name]) for name in shared)
    assert main(["export", run, "--client", "7", "--to", "onnx", "--out", "seven.onnx"]) == 0
    model = MODELS["softmax"]((1, 8, 8), 10)
    model.load_state_dict(own)
    inputs, _ = load_federation("digits-clients").test.of(7)
    found = onnxruntime.InferenceSession("seven.onnx").run(None, {"inputs": inputs.numpy()})[0]
    with torch.no_grad():
        np.testing.assert_allclose(found, model.eval()(inputs).numpy(), atol=1e-5)
    assert "float32 of shape (batch, 1, 8, 8)" in capsys.readouterr().out


def test_what_makes_no_sense_is_a_sentence_and_writes_nothing(runs, tmp_path, capsys):
    fitted, federated = str(runs / "dfr"), str(runs / "federation")
    (tmp_path / "there.onnx").write_text("mine")
    for typed, said in [
        (["nowhere"], "there is no run at nowhere"),
        ([fitted, "--client", "1"], "leave out --client"),
        ([federated, "--client", "all"], "name one client"),
        ([federated, "--client", "x"], "has no client 'x'"),
        ([federated, "--client", "1", "--method", "ditto"], "no models by 'ditto'"),
        ([fitted, "--to", "onnx", "--out", "m.pt2"], "should end in .onnx"),
        ([fitted, "--to", "onnx", "--out", "there.onnx"], "say --overwrite"),
        ([fitted, "--to", "onnx", "--out", "there.onnx/m.onnx"], "can't be made"),
    ]:
        assert main(["export", *typed]) == 2, typed
        assert said in " ".join(capsys.readouterr().err.split()), typed
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_text() == "mine"
