import json

import pytest
from holdfast.papers.fingerprint import fingerprint

from holdfast.data import catalog as data
from holdfast.errors import ConfigError
from holdfast.methods import build_method
from holdfast.models.registry import MODELS
from holdfast.papers.engine.catalog import EXPERIMENTS, find
from holdfast.papers.engine.experiment import load_function
from holdfast.training import Training

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
def test_every_printed_number_belongs_to_a_cell_of_the_largest_scale(name):
    experiment = find(name)
    assert set(experiment.printed) <= {cell.name for cell in experiment.cells_at(experiment.scales[-1])}


METHOD_CELLS = [
    cell
    for experiment in EXPERIMENTS.values()
    for scale in experiment.scales
    for cell in experiment.cells_at(scale)
    if "method" in cell.settings and "training" in cell.settings
]


@pytest.mark.parametrize("cell", {cell.name: cell for cell in METHOD_CELLS}.values(), ids=lambda cell: cell.name)
def test_every_cell_with_a_method_names_what_exists(cell):
    settings = cell.settings
    options = {key: value for key, value in settings["data"].items() if key != "name"}
    data.find(settings["data"]["name"])(**options)
    assert settings["model"]["name"] in MODELS
    build_method(settings["method"], settings["options"], settings["groups"])
    assert Training(**{**settings["training"], "device": "cpu"})
