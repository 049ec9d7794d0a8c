from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from holdfast.cli.common.options import parse
from holdfast.errors import ConfigError
from holdfast.spurious import GroupBalanced, GroupSubsampled
from holdfast.training import Chain


def test_defaults_are_the_data_sets_recipe():
    options = parse(["--data", "cmnist5"])
    assert (options.choices.model, options.training.epochs, options.training.learning_rate) == ("lenet5", 20, 1e-3)
    assert parse([]).choices.data == "coloured-digits"


def test_options_of_the_chosen_data_set_and_method_are_named_after_them():
    options = parse(["--data", "cmnist5", "--cmnist5.correlation", "0.9", "--method", "group-subsampled",
                     "--group-subsampled.at-least", "7"])  # fmt: skip
    assert options.data.correlation == 0.9
    assert options.policy == GroupSubsampled(at_least=7)


def test_methods_joined_by_plus_are_chained():
    policy = parse(["--method", "group-subsampled+group-balanced"]).policy
    assert isinstance(policy, Chain)
    assert policy.members == (GroupSubsampled(), GroupBalanced())


def test_a_path_is_a_data_set_with_options_of_its_own_kind(tmp_path, monkeypatch):
    (tmp_path / "wards.csv").write_text("a,y\n1,0\n2,1\n")
    monkeypatch.chdir(tmp_path)
    options = parse(["--data", "wards.csv", "--label", "y", "--features", "a"])
    assert (options.data.name, options.data.path) == ("own", str(tmp_path / "wards.csv"))
    assert (options.data.reading.label, options.data.reading.features) == ("y", ("a",))
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(options.config()))
    monkeypatch.chdir("/")  # the configuration of a run names its data wherever it is read
    assert parse(["--config", str(file)]).data == options.data


def test_the_configuration_of_an_older_run_on_a_folder_is_understood(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"data": str(tmp_path), "folder": {"path": str(tmp_path), "size": 32}}))
    options = parse(["--config", str(file)])
    assert (options.data.name, options.data.path, options.data.size) == ("folder", tmp_path, 32)


def test_a_printed_configuration_read_back_says_the_same(tmp_path):
    typed = ["--data", "cmnist5", "--cmnist5.minority_ratio", "8", "4", "2", "1", "--method", "group-subsampled",
             "--epochs", "3", "--milestones", "0.5", "--epoch-size", "100", "--weights", "w.pth"]  # fmt: skip
    options = parse(typed)
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(options.config()))
    again = parse(["--config", str(file)])
    assert again.config() == options.config()
    assert asdict(again.training) == asdict(options.training)
    assert again.data == options.data


def test_what_is_typed_wins_over_the_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("data: cmnist5\nepochs: 3\ncmnist5:\n  correlation: 0.9\n")
    options = parse(["--config", str(file), "--epochs", "4", "--cmnist5.correlation", "0.8"])
    assert (options.training.epochs, options.data.correlation, options.choices.data) == (4, 0.8, "cmnist5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", r"unknown key 'epoch'; did you mean 'epochs'\?"),
        ("data: cmnist5\ncmnist5: {corelation: 0.9}", r"unknown key cmnist5\.corelation; did you mean 'correlation'\?"),
        ("data: cmnist", r"no data set, file or folder 'cmnist'; did you mean 'cmnist5'\?"),
        ("method: group-balance", r"no method 'group-balance'; did you mean 'group-balanced'\?"),
        ("- a\n- b", "must hold options as"),
        ("a: [", "not valid YAML"),
        ("epochs: 0", "epochs is 0; give at least 1"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path, text, message):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse(["--config", str(file)])


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"no\.yaml can't be read \(No such file"):
        parse(["--config", "no.yaml"])


def test_an_unknown_option_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--lerning-rate", "0.1"])
    assert stop.value.code == 2
    assert "--learning-rate" in capsys.readouterr().err


def test_paths_stay_paths(tmp_path):
    assert parse(["--out", str(tmp_path)]).choices.out == Path(tmp_path)
