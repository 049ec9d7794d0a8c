import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.experiment import Cell
from tests.papers.toy import toy_experiment


@pytest.mark.parametrize("name", ["table1", "toys/", "a/b/c"])
def test_an_experiment_is_named_after_its_paper(tmp_path, name):
    with pytest.raises(ConfigError, match="paper/experiment"):
        toy_experiment(tmp_path, name=name)


def test_two_cells_of_one_name_are_refused(tmp_path):
    twins = toy_experiment(tmp_path, cells=lambda scale: (Cell("toy/a", "x:y"), Cell("toy/a", "x:z")))
    with pytest.raises(ConfigError, match="two cells named 'toy/a'"):
        twins.cells_at("cpu")


def test_a_scale_that_an_experiment_lacks_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no scale 'paper'"):
        toy_experiment(tmp_path, scales=("smoke", "cpu")).cells_at("paper")


def test_the_smoke_scale_has_seeds_of_its_own(tmp_path):
    experiment = toy_experiment(tmp_path, seeds=(5, 6, 7), smoke_seeds=(1,))
    assert experiment.default_seeds("smoke") == (1,)
    assert experiment.default_seeds("paper") == (5, 6, 7)
