from pathlib import Path

import pytest

from holdfast.cli.commands import data
from holdfast.errors import ConfigError


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert data.main(list(arguments)) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_list_has_pooled_and_federated_data_sets(capsys, tmp_path: Path) -> None:
    said = output(capsys, "list", "--data-root", str(tmp_path))
    for name in ("waterbirds", "fashion-mnist", "vehicle (clients)", "surrogate (clients)", "stackoverflow (clients)"):
        assert name in said


def test_a_federated_data_set_is_described_by_client(capsys, tmp_path: Path) -> None:
    said = output(capsys, "info", "surrogate", "--data-root", str(tmp_path))
    assert "100 clients, 10 classes" in said
    assert "recipe: model softmax, learning_rate 0.1, batch_size 16, rounds 600, cohort 10" in said
    assert "test │ 10,000 │ 100.0 │ 100.0 │ 100 │ 100" in said


def test_of_two_data_sets_with_one_name_the_pooled_one_is_described_unless_clients_are_asked_for(
    capsys, tmp_path: Path
) -> None:
    assert "model lenet5" in output(capsys, "info", "fashion-mnist", "--data-root", str(tmp_path))
    assert "model cnn-fashion" in output(capsys, "info", "fashion-mnist", "--clients", "--data-root", str(tmp_path))


def test_how_to_get_files_that_are_not_here(capsys, tmp_path: Path) -> None:
    assert "surrogate needs no files" in output(capsys, "get", "surrogate", "--data-root", str(tmp_path))
    said = output(capsys, "info", "vehicle", "--data-root", str(tmp_path))
    assert "missing" in said and "put vehicle.mat" in said


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no data set 'vehicel'; did you mean 'vehicle'"):
        data.main(["info", "vehicel"])
    with pytest.raises(ConfigError, match="there is no data set 'mnist'; did you mean 'femnist'"):
        data.main(["info", "mnist", "--clients"])
