"""`holdfast export` and `holdfast predict` on the state folder of a Flower node: owners take their models out."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from holdfast.cli.commands.export import Export, export
from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.predict import Predict, predict
from holdfast.cli.common.node_models import NodeModels, node_state
from holdfast.errors import CheckpointError, ConfigError, FederationError
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.nodes.node import Node
from tests.integrations.flower.small_federation import options_of

NAME, TOTAL = "0123456789abcdef" * 2, 16


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The state of a node of clients 4 to 7, of which 4 and 5 took part in a round."""
    folder = tmp_path_factory.mktemp("state")
    options = options_of("--personalize", "ditto+local", "--ditto.lambda", "0.5", "--ditto.start", "initial")
    node = Node(blueprint_of(options), {"state": str(folder), "clients": "4-7"}, NAME)
    weights = node_weights(node)
    for action, labels, part in (("census", (), ""), ("train", (), ""), ("score", ("", "ditto-0.5"), "test")):
        request = Request(action, NAME, 0, TOTAL, (4, 5), labels, part, weights)
        node.answer(request, request.pack())
    models = {client: node.personal("ditto-0.5", client) for client in (4, 5)}
    assert not all(torch.allclose(models[5][name], value, atol=1e-6) for name, value in models[4].items())
    return folder, models


def node_weights(node):
    torch.manual_seed(0)
    return 0.1 * torch.randn(node.runtime(TOTAL).network.size)


@pytest.fixture
def state(made, tmp_path):
    """A copy somewhere else: where the node was when it wrote does not matter."""
    shutil.copytree(made[0], tmp_path / "moved")
    return tmp_path / "moved"


@pytest.fixture
def console():
    class Quiet:
        def print(self, *words, **options):
            pass

    return Quiet()


@pytest.mark.parametrize("to", ["safetensors", "torch-export", "onnx"])
def test_a_clients_model_leaves_the_node_in_every_format(made, state, to, console, tmp_path):
    out = tmp_path / {"safetensors": "mine", "torch-export": "mine.pt2", "onnx": "mine.onnx"}[to]
    export(Export(state, to, out, client="5", method="ditto-0.5"), console)
    inputs = torch.rand(3, *NodeModels(state / NAME).clients.input_shape)
    trained = NodeModels(state / NAME).trained()
    trained.model.load_state_dict(made[1][5])
    with torch.no_grad():
        expected = trained.model(inputs)
    if to == "safetensors":
        found = load_file(out / "weights.safetensors")
        assert all(torch.equal(found[name], value) for name, value in made[1][5].items())
    elif to == "torch-export":
        torch.testing.assert_close(torch.export.load(out).module()(inputs), expected, atol=1e-5, rtol=0)
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(out)
        (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_predictions_of_a_client_are_its_own_models(made, state, console, tmp_path):
    out = tmp_path / "guesses.parquet"
    predict(Predict(state, out=out, client="4", method="ditto-0.5"), console)
    table = pq.read_table(out)
    models = NodeModels(state / NAME)
    inputs, labels = models.clients.test.of(0)
    trained = models.trained()
    trained.model.load_state_dict(made[1][4])
    with torch.no_grad():
        guesses = trained.model(inputs).argmax(1)
    assert [int(guess) for guess in table["predicted"].to_pylist()] == guesses.tolist()
    assert [int(label) for label in table["label"].to_pylist()] == labels.tolist()
    assert set(table["client"].to_pylist()) == {"4"}


def test_the_shared_model_predicts_for_all_clients_of_the_node(state, console, tmp_path):
    predict(Predict(state, out=tmp_path / "shared.parquet"), console)
    assert set(pq.read_table(tmp_path / "shared.parquet")["client"].to_pylist()) <= {"4", "5", "6", "7"}


MISTAKES = {
    "has no client '3'": {"client": "3", "method": "ditto-0.5"},
    "client 6 has no personal model yet": {"client": "6", "method": "ditto-0.5"},
    "say which with --method": {"client": "4"},
    "no model by 'ditto-0.7'": {"client": "4", "method": "ditto-0.7"},
    "name one client": {"client": "all", "method": "local"},
}


@pytest.mark.parametrize(("said", "options"), MISTAKES.items(), ids=MISTAKES)
def test_what_is_missing_is_said_in_a_sentence_and_nothing_is_written(state, console, tmp_path, said, options):
    with pytest.raises((ConfigError, FederationError), match=said):
        export(Export(state, out=tmp_path / "mine", **options), console)
    assert not (tmp_path / "mine").exists()


def test_other_data_is_refused_with_what_to_do(state, console):
    with pytest.raises(ConfigError, match="export the model"):
        predict(Predict(state, "other.csv", client="4", method="ditto-0.5"), console)


def test_a_node_of_several_federations_is_asked_which(state):
    assert node_state(state) == state / NAME == node_state(state / NAME)
    shutil.copytree(state / NAME, state / "another")
    with pytest.raises(ConfigError, match="give the folder of one"):
        node_state(state)
    assert node_state(state.parent / "nowhere") is None


def test_the_folder_of_a_mod_is_told_apart(tmp_path, console):
    (tmp_path / "run-7").mkdir()
    (tmp_path / "run-7" / "3.safetensors").touch()
    with pytest.raises(ConfigError, match="`export_personal` in holdfast"):
        export(Export(tmp_path, client="3"), console)


def test_a_damaged_configuration_is_named(state, console):
    (state / NAME / "options.json").write_text("[1, 2")
    with pytest.raises(CheckpointError, match=r"options\.json can't be read"):
        export(Export(state, client="4"), console)
    (state / NAME / "options.json").write_text(json.dumps([1]))
    with pytest.raises(CheckpointError, match="holds no configuration"):
        export(Export(state, client="4"), console)


def test_a_node_that_saw_no_evaluation_says_so(state, console):
    (state / NAME / "shared.safetensors").unlink()
    with pytest.raises(FederationError, match="seen no evaluation yet"):
        export(Export(state, client="4"), console)
