"""`holdfast federate --engine flower`: what is refused before anything starts, and the app for several machines."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from holdfast.cli.commands.federation.options import parse
from holdfast.cli.main import main
from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.integrations.flower.charter import Charter


def test_options_of_flower_are_known_where_flower_is_the_engine():
    options = parse(["--engine", "flower", "--nodes", "3", "--minimum", "4", "--on-few", "wait", "--timeout", "9"])
    assert (options.flower.nodes, options.flower.minimum, options.flower.on_few) == (3, 4, "wait")
    assert options.config()["engine"] == "flower"
    assert options.config()["nodes"] == 3


def test_a_simulated_federation_has_no_word_of_flower_in_its_configuration():
    assert not {"engine", "nodes", "app", "minimum"} & parse([]).config().keys()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "3"], "--nodes is for federations on Flower; add --engine flower"),
        (["--on-few", "fail"], "--on-few is for federations on Flower"),
        (["--app", "here"], "add --engine flower"),
        (["--engine", "flower", "--nodes", "0"], "nodes is 0; give at least 1"),
        (["--engine", "flower", "--timeout", "-1"], "positive number of seconds"),
        (["--engine", "flower", "--minimum", "0"], "minimum is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(words, says):
    with pytest.raises(ConfigError, match=says):
        parse(words)


def test_more_nodes_than_clients_are_refused_before_anything_is_written(tmp_path, capsys):
    pytest.importorskip("flwr")
    words = ["--engine", "flower", "--nodes", "9", "--digits-clients.clients", "8", "--cohort", "2"]
    assert main(["federate", *words, "--out", str(tmp_path / "run")]) == 2
    assert "9 nodes for 8 clients; lower --nodes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_flower_the_extra_is_named(monkeypatch, tmp_path):
    from holdfast.integrations.flower.rehearsal.deployment import require_flower

    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[flower\]"):
        require_flower()


def test_methods_that_look_at_all_clients_are_refused():
    from holdfast.integrations.flower.server.federation import refuse_methods_that_see_all

    options = parse(["--engine", "flower", "--personalize", "transferability"])
    with pytest.raises(ConfigError, match="run it in the simulator"):
        refuse_methods_that_see_all(options.personalizers)


def test_the_app_holds_the_configuration_and_nothing_that_is_run_but_holdfast(tmp_path, capsys):
    words = ["--engine", "flower", "--data", "digits-clients", "--rounds", "7", "--ditto.lambda", "0.5"]
    assert main(["federate", *words, "--app", str(tmp_path / "app")]) == 0

    assert "flwr run" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "app").iterdir()} == {
        "pyproject.toml",
        "holdfast_server.py",
        "holdfast_client.py",
    }
    tomllib = pytest.importorskip("tomllib")
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    ours = {**parse(words).config(), "sampling": "uniform"}  # nobody counts what a client elsewhere claims to have
    assert json.loads(app["config"]["holdfast"]) == yaml.safe_load(yaml.safe_dump(ours))
    assert Charter.from_json(app["config"]["charter"]).model.name == ours["model"]
    (tmp_path / "app" / "mine.txt").write_text("")
    assert main(["federate", *words, "--app", str(tmp_path / "app")]) == 2


@pytest.mark.xdist_group("flower")
def test_ctrl_c_stops_every_process_and_the_run_continues(tmp_path):
    pytest.importorskip("flwr")
    words = ["--engine", "flower", "--nodes", "2", "--rounds", "3", "--evaluate-every", "0", "--cohort", "4"]
    words += ["--digits-clients.clients", "8", "--ditto.lambda", "0.5", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "holdfast.cli.main", "federate"]
    run = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoint = tmp_path / "run" / "checkpoints" / "last.safetensors"
    while not checkpoint.exists() and run.poll() is None:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=120)[0]

    assert run.returncode == 130, said
    assert "continue with: holdfast federate --resume" in " ".join(said.split())
    assert not _processes_in(tmp_path)
    assert main(["federate", "--resume", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["history"][-1]["round"] == 3
    assert not _processes_in(tmp_path)


def _processes_in(folder: Path) -> list[str]:
    """Commands of living processes that have a file open below `folder`, or are named after it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
            if any(name.startswith(str(folder)) for name in opened) and process.name != "self":
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
