import json

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.catalog import EXPERIMENTS, find
from holdfast.papers.experiment import load_function
from holdfast.papers.fingerprint import fingerprint

AT_SCALE = [(name, scale) for name, experiment in EXPERIMENTS.items() for scale in experiment.scales]


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'spare/table5\.1'"):
        find("spare/table51")


@pytest.mark.parametrize(("name", "scale"), AT_SCALE)
def test_every_declaration_can_run_in_another_process(name, scale):
    experiment = find(name)
    assert experiment.name == name
    for cell in experiment.cells_at(scale):
        assert json.loads(json.dumps(cell.settings)) == cell.settings
        assert callable(load_function(cell.function))
    assert fingerprint(experiment, scale) == fingerprint(experiment, scale)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_printed_number_belongs_to_a_cell_of_the_paper_scale(name):
    experiment = find(name)
    assert set(experiment.printed) <= {cell.name for cell in experiment.cells_at("paper")}
