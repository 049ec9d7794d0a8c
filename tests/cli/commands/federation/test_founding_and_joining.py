"""`holdfast federation init` and `join --check`: what is refused before anything is sent or imported."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch
import yaml

pytest.importorskip("flwr")

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.cli.commands.federation.options import parse
from holdfast.cli.common.arguments import as_arguments
from holdfast.cli.main import main
from holdfast.errors import ConfigError, FederationError
from holdfast.integrations.flower.messages.wire import Request
from holdfast.integrations.flower.nodes.node import Node
from holdfast.integrations.flower.operation.federation_folder import FederationFolder
from holdfast.integrations.flower.operation.invitation import Invitation
from tests.integrations.flower.operation.server import small_federation

ROWS = [
    f"{ward},{20 + 7 * k},{60 + 11 * (k % 5)},{'fm'[k % 2]},{('no', 'yes')[k > 5]}" for ward in "ab" for k in range(12)
]
NET = """
import pathlib

from torch import nn

pathlib.Path({marker!r}).write_text("imported")


class Net(nn.Sequential):
    def __init__(self, input_shape, n_classes):
        super().__init__(nn.Linear(*input_shape, n_classes))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.csv").write_text("\n".join(["ward,age,pulse,sex,sepsis", *ROWS]) + "\n")
    return tmp_path


def found(*words: str) -> int:
    return main(
        ["federation", "init", "ours", "--data", "example.csv", "--label", "sepsis", "--client", "ward", *words]
    )


def join(*words: str, data: str = "example.csv") -> int:
    given = ["--invitation", "ours/invitation.json", "--server", "127.0.0.1:1", "--state", "state", "--check"]
    return main(["federation", "join", *given, "--data", data, *words])


@pytest.fixture
def founded(place):
    assert found("--model", "softmax") == 0
    return place


@pytest.fixture
def own_model(place, monkeypatch):
    """A federation whose model is a package in the current folder."""
    monkeypatch.syspath_prepend(str(place))
    name = f"nets_{place.name}".replace("-", "_")
    (place / f"{name}.py").write_text(NET.format(marker=str(place / "marker")))
    assert found("--model", f"{name}:Net") == 0
    (place / "marker").unlink()
    sys.modules.pop(name)  # a node is another machine
    return name


def test_data_that_fits_is_accepted_and_makes_a_key(founded, capsys):
    assert join() == 0
    assert "2 clients (a, b)" in capsys.readouterr().out
    assert (founded / "state" / "node").stat().st_mode & 0o777 == 0o600


def test_a_node_is_told_how_it_is_admitted(founded, capsys):
    assert join() == 0
    assert "holdfast federation admit FOLDER NAME node.pub --clients 2 --most-examples 9" in capsys.readouterr().out


def test_a_user_without_a_name_founds_a_federation(place, monkeypatch):
    """In containers a user is often a number alone."""

    def nameless():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert found("--model", "softmax") == 0
    assert f"User={os.getuid()}\n" in (place / "ours" / "holdfast-federation.service").read_text()


@pytest.mark.parametrize("name", ["two words", "a;b", "$HOME", "it's", "c{d}", "e%f", 'g"h', "i\nj"])
def test_a_folder_whose_name_means_something_to_nginx_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="read otherwise"):
        small_federation(tmp_path / name / "ours")
    assert not (tmp_path / name).exists()


def test_a_ward_s_model_of_the_federation_s_own_code_predicts_new_rows_by_its_name(own_model, place, capsys):
    assert join("--allow-code", own_model) == 0
    invitation = Invitation.load(place / "ours" / "invitation.json")
    options = parse([*as_arguments(invitation.options), "--personalize", "ditto", "--ditto.lambda", "1"])
    config, name = {"state": str(place / "state"), "data": str(place / "state" / "data")}, "0123456789abcdef" * 2
    node = Node(blueprint_of(options), config, name, invitation.charter)
    for action, labels in (("census", ()), ("train", ()), ("score", ("", "ditto-1"))):
        size = 0 if action == "census" else node.runtime(3).network.size
        request = Request(action, name, 0, 3, (1, 2), labels, "test", torch.zeros(size) if size else None)
        node.answer(request, request.pack())
    (place / "new.csv").write_text("ward,age,pulse,sex\nb,83,92,m\na,21,70,f\nb,25,71,f\n")
    assert main(["predict", "state", "new.csv", "--client", "b", "--out", "b.csv"]) == 0
    assert [row.split(",")[1] for row in (place / "b.csv").read_text().splitlines()] == ['"client"', '"b"', '"b"']
    assert main(["predict", "state", "new.csv", "--client", "2", "--out", "c.csv"]) == 2
    assert "client 2 of the federation is called 'b' here; give --client b" in capsys.readouterr().err


def test_a_node_that_comes_back_has_the_same_clients(founded, capsys):
    """Ids go by order and personal models by ids: another ward would be given this one's model."""
    assert join() == 0
    more = (founded / "example.csv").read_text() + "\n".join(row.replace("b,", "aa,") for row in ROWS[12:]) + "\n"
    (founded / "more.csv").write_text(more)
    assert join(data="more.csv") == 2
    assert "a, aa, b" in capsys.readouterr().err
    assert join() == 0


def test_columns_may_have_other_names(founded):
    renamed = "\n".join(["station,age,pulse,sex,outcome", *ROWS]) + "\n"
    (founded / "other.csv").write_text(renamed)
    assert join("--label", "outcome", "--client", "station", data="other.csv") == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace("yes", "perhaps"), "perhaps"),
        (lambda text: text.replace("pulse", "puls"), "no column 'pulse'"),
        (lambda text: text.replace("ward,", "station,"), "--client"),
        (lambda text: text.replace("sepsis", "outcome"), "--label"),
        (lambda text: text.replace(",60,", ",high,"), "not numbers"),
    ],
    ids=["class", "column", "client", "label", "number"],
)
def test_data_that_does_not_fit_is_refused_in_a_sentence(founded, capsys, change, sentence):
    (founded / "other.csv").write_text(change((founded / "example.csv").read_text()))
    assert join(data="other.csv") == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_code_that_nobody_allowed_is_not_imported(own_model, place, capsys):
    assert join() == 2
    assert f"--allow-code {own_model}" in capsys.readouterr().err
    assert not (place / "marker").exists()


def test_code_with_another_source_is_not_imported(own_model, place, capsys):
    (place / f"{own_model}.py").write_text(NET.format(marker=str(place / "marker")) + "\n# changed\n")
    assert join("--allow-code", own_model) == 2
    assert "install the same package" in capsys.readouterr().err
    assert not (place / "marker").exists()


def test_code_that_was_allowed_is_used(own_model, place, capsys):
    assert join("--allow-code", own_model) == 0
    assert (place / "marker").exists()


def test_an_invitation_names_no_file_of_the_operator(founded):
    text = (founded / "ours" / "invitation.json").read_text()
    assert str(founded) not in text
    assert "example" not in text
    assert json.loads(text)["options"]["data"] == "nodes"


@pytest.mark.parametrize(
    "option", [{"weights": "/etc/passwd"}, {"data": "/etc/passwd"}, {"data_root": "/etc"}, {"config": "/etc/passwd"}]
)
def test_a_path_in_an_order_is_refused(founded, option):
    invitation = FederationFolder.open(founded / "ours").invitation()
    (name,) = option
    with pytest.raises(FederationError, match=name):
        invitation.check_order({**invitation.options, **option}, invitation.charter.to_json())


def test_an_order_for_other_rounds_is_the_servers_business(founded):
    invitation = FederationFolder.open(founded / "ours").invitation()
    invitation.check_order({**invitation.options, "rounds": 7, "timeout": 1.0}, invitation.charter.to_json())
    with pytest.raises(FederationError, match="charter"):
        invitation.check_order(invitation.options, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--superlink", "0.0.0.0:8000"], "past the proxy"),
        (["--superlink", "127.0.0.1:8443"], "share port"),
        (["--listen", "here"], "--listen"),
        (["--attack", "a1", "--malicious", "0.2"], "--attack"),
        (["--weights", "start.safetensors"], "--weights"),
        (["--clients-per-node", "0"], "--clients-per-node"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_federation_that_can_not_be_is_refused_and_nothing_is_written(place, capsys, words, sentence):
    assert found("--model", "softmax", *words) == 2
    assert sentence in capsys.readouterr().err
    assert not (place / "ours").exists()


def test_an_example_is_asked_for(place, capsys):
    assert main(["federation", "init", "ours", "--model", "softmax"]) == 2
    assert "give --data" in capsys.readouterr().err


def test_an_app_without_data_is_refused(place, capsys):
    assert main(["federate", "--engine", "flower", "--app", "app"]) == 2
    assert "digits" in capsys.readouterr().err


def test_a_federation_is_not_written_over(founded, capsys):
    assert found("--model", "softmax") == 2
    assert "not empty" in capsys.readouterr().err


def test_compose_publishes_the_proxys_port_alone(founded):
    service = yaml.safe_load((founded / "ours" / "compose.yaml").read_text())["services"]["federation"]
    assert service["ports"] == ["8443:8443"]
    assert service["command"][:3] == ["holdfast", "federation", "serve"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "holdfast-invitation-1"}', "[" * 100_000])
def test_what_is_no_invitation_is_refused(founded, capsys, text):
    (founded / "ours" / "invitation.json").write_text(text)
    assert join() == 2
    assert "invitation" in capsys.readouterr().err


def test_two_invitations_with_one_digest_are_the_same(founded):
    invitation = FederationFolder.open(founded / "ours").invitation()
    other = Invitation(invitation.charter, {**invitation.options, "learning_rate": 1.0}, invitation.certificate)
    assert invitation.digest != other.digest
    other.save(founded / "other.json")
    assert Invitation.load(founded / "other.json").digest == other.digest
