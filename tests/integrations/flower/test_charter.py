"""A federation owns its model and the meaning of its data; a node that has others is told what differs."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from holdfast.data import Clients
from holdfast.errors import ConfigError, FederationError
from holdfast.integrations.flower.charter import Charter, ModelIdentity, source_hash


@pytest.fixture
def clients():
    data = {f"ward-{k}": (torch.randn(20, 3), ["ill", "well"] * 10) for k in range(2)}
    return Clients.of(data)


@pytest.fixture
def charter(clients):
    return Charter.of(nn.Linear(3, 2), ModelIdentity("softmax"), clients, most_bytes=10_000)


def test_a_charter_survives_its_text_and_its_digest_tells_it_from_others(charter):
    again = Charter.from_json(charter.to_json())
    assert again == charter and again.digest == charter.digest
    assert replace(charter, most_bytes=9_999).digest != charter.digest


def test_a_model_with_another_parameter_is_refused_by_name(charter):
    charter.check_model(nn.Linear(3, 2))
    with pytest.raises(FederationError, match=r"weight \(float32, 2 x 4\).*weight \(float32, 2 x 3\)"):
        charter.check_model(nn.Linear(4, 2))
    with pytest.raises(FederationError, match="weight"):
        charter.check_model(nn.Linear(3, 2).double())
    with pytest.raises(FederationError, match="1 tensors and the federation's 2"):
        charter.check_model(nn.Linear(3, 2, bias=False))


def test_data_of_another_shape_or_meaning_is_refused(charter, clients):
    charter.check_data(clients)
    with pytest.raises(FederationError, match="the number of classes"):
        charter.check_data(replace(clients, classes=3))
    wide = Clients.of({"a": (torch.randn(20, 4), ["ill", "well"] * 10)})
    with pytest.raises(FederationError, match="inputs of the shape"):
        charter.check_data(wide)


def test_code_of_ones_own_is_known_by_its_source_and_not_imported_for_it(tmp_path, monkeypatch):
    package = tmp_path / "wards_net"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "nets.py").write_text("class Net: ...\n")
    monkeypatch.chdir(tmp_path)
    identity = ModelIdentity.of("wards_net.nets:Net", {"hidden": 4})
    assert identity.package == "wards_net" and identity.sha256 == source_hash("wards_net")
    identity.check_here()
    (package / "nets.py").write_text("class Net: evil = True\n")
    with pytest.raises(FederationError, match="install the same package"):
        identity.check_here()
    with pytest.raises(FederationError, match="there is no package"):
        ModelIdentity("gone.nets:Net", {}, "gone", "", "0" * 64).check_here()


def test_networks_that_are_known_by_name_need_no_hash():
    assert ModelIdentity.of("softmax") == ModelIdentity("softmax")
    assert ModelIdentity.of("hf:prajjwal1/bert-tiny").package == ""


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"task": "regression"},
        {"classes": 0},
        {"classes": True},
        {"input_shape": [10**6] * 9},
        {"input_shape": [-1]},
        {"parameters": [["weight", [2, 3]]]},
        {"parameters": "weight"},
        {"most_bytes": 0},
        {"schema": {"format": "none"}},
        {"model": {"name": "a.b:C", "args": {}, "package": "", "version": "", "sha256": ""}},
        {"model": {"name": "softmax", "args": [], "package": "", "version": "", "sha256": ""}},
    ],
)
def test_what_is_no_charter_is_refused(charter, change):
    with pytest.raises(ConfigError, match="isn't the charter"):
        Charter.from_json(json.dumps({**charter.as_dict(), **change}))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "3"])
def test_texts_that_are_no_charter_are_refused(text):
    with pytest.raises(ConfigError, match="isn't the charter"):
        Charter.from_json(text)
