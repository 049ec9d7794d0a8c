"""Going on with a run."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from holdfast.cli.common.runs import continued, print_config, refuse_selection, says_how_to_continue
from holdfast.errors import ConfigError
from holdfast.training import Run


@dataclass(frozen=True)
class Options:
    values: dict

    def config(self):
        return self.values


def parse(words):
    """The configuration file that the words name, and the words ``name=value`` on top."""
    stored = yaml.safe_load(Path(words[words.index("--config") + 1]).read_text()) if "--config" in words else {}
    return Options({**stored, **dict(word.split("=") for word in words if "=" in word)})


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", {"epochs": "3", "workers": "1"}, kind="federation")


def test_a_run_goes_on_with_its_options_and_those_that_change_no_result(run):
    options, again = continued(run.path, ["workers=2"], parse, "federation", free=("workers",))
    assert options.config() == {"epochs": "3", "workers": "2"} and again.path == run.path


def test_other_options_another_command_and_a_finished_run_are_refused(run):
    with pytest.raises(ConfigError, match="epochs would change"):
        continued(run.path, ["epochs=4"], parse, "federation")
    with pytest.raises(ConfigError, match="continue it with `holdfast federate --resume`"):
        continued(run.path, [], parse, "fit")
    run.lock()
    with pytest.raises(ConfigError, match="another process is writing"):
        continued(run.path, [], parse, "federation")
    run.unlock()
    run.save_results({})
    with pytest.raises(ConfigError, match="is finished; `holdfast report"):
        continued(run.path, [], parse, "federation")


def test_who_stops_a_run_is_told_how_to_continue_it(run, capsys):
    with pytest.raises(KeyboardInterrupt), says_how_to_continue(run, Console()):
        raise KeyboardInterrupt
    assert f"stopped; continue with: holdfast federate --resume {run.path}" in capsys.readouterr().out


def test_a_printed_configuration_can_be_read_back(capsys):
    print_config({"b": 1, "a": [None, "x"]})
    assert list(yaml.safe_load(capsys.readouterr().out).items()) == [("b", 1), ("a", [None, "x"])]


def test_only_a_selection_is_refused_where_a_model_is_needed(run, tmp_path):
    refuse_selection(run)
    with pytest.raises(ConfigError, match="is a selection of data and has no model"):
        refuse_selection(Run.create(tmp_path / "chosen", {}, kind="selection"))
