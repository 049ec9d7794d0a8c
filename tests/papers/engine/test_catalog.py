import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.data import catalog as data
from holdfast.errors import ConfigError
from holdfast.methods import build_method
from holdfast.models import MODELS
from holdfast.papers.engine.catalog import FORMER_NAMES, PAPERS, every_experiment, experiments_of, find
from holdfast.papers.engine.kinds import KINDS, key_of
from holdfast.training import Training

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = {experiment.name: experiment for experiment in every_experiment()}
AT_SCALE = [(name, scale) for name, experiment in EXPERIMENTS.items() for scale in experiment.scales]


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'spare/table5\.1'"):
        find("spare/table51")
    with pytest.raises(ConfigError, match=r"did you mean 'spare/table5\.1'"):
        find("spear/table5.1")
    with pytest.raises(ConfigError, match="did you mean 'spare'"):
        experiments_of("spear")


def test_a_former_name_is_answered_with_todays():
    with pytest.raises(ConfigError, match="no experiment 'multimodal/detection'; did you mean 'clip/detection'"):
        find("multimodal/detection")
    with pytest.raises(ConfigError, match=r"did you mean 'personalization/table2'"):
        find("spurious-personalization/table2")
    for before, today in FORMER_NAMES.items():
        assert before not in PAPERS
        with pytest.raises(ConfigError, match=f"of '{before}'; did you mean '{today}'"):
            experiments_of(before)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_document_has_one_name_for_its_modules_its_results_and_its_pages(paper):
    assert {module.partition(".")[0] for module in PAPERS[paper]} == {paper}
    assert (ROOT / "results" / "golden" / f"{paper}.json").exists()
    for folder in (ROOT / "results" / paper, ROOT / "docs" / "results" / paper):
        assert any(folder.iterdir())


def test_names_are_of_their_paper_and_unique():
    names = [experiment.name for experiment in every_experiment()]
    assert len(set(names)) == len(names)
    for paper in PAPERS:
        assert {experiment.paper for experiment in experiments_of(paper)} == {paper}


def imported(statement):
    """The modules of holdfast and whether torch or NumPy were imported by a statement, in a fresh process."""
    code = f"{statement}; import sys; print(*[name for name in sys.modules if name.split('.')[0] in KEPT])"
    code = "KEPT = ('holdfast', 'torch', 'numpy', 'scipy', 'sklearn', 'pyarrow'); " + code
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_declarations_import_nothing_heavy_so_that_all_can_be_listed():
    found = imported("from holdfast.papers.engine.catalog import every_experiment; every_experiment()")
    assert [name for name in found if not name.startswith("holdfast")] == []


@pytest.mark.parametrize("name", ["ditto/table8", "s2l/facts"])
def test_one_experiment_imports_its_own_document_only(name):
    found = imported(f"from holdfast.papers.engine.catalog import find; find({name!r})")
    own = {f"holdfast.papers.{module}" for module in PAPERS[name.partition("/")[0]]}
    others = {f"holdfast.papers.{module}" for paper in PAPERS for module in PAPERS[paper]} - own
    assert own <= set(found) and not others & set(found)


@pytest.mark.parametrize(("name", "scale"), AT_SCALE)
def test_every_declaration_can_run_in_another_process(name, scale):
    experiment = find(name)
    assert experiment.name == name
    for cell in experiment.cells_at(scale):
        assert json.loads(json.dumps(cell.settings)) == cell.settings
        assert cell.kind in KINDS
        assert key_of(cell)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_claims_something(name):
    claims = [claim.name for claim in EXPERIMENTS[name].claims]
    assert claims, "a table without a sentence to judge is no evidence"
    assert len(set(claims)) == len(claims)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_printed_number_belongs_to_a_cell_of_the_largest_scale(name):
    experiment = find(name)
    assert set(experiment.printed) <= {cell.name for cell in experiment.cells_at(experiment.scales[-1])}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_golden_cells_have_the_versions_of_the_cells_they_stand_for(name):
    experiment = EXPERIMENTS[name]
    declared = {cell.version for scale in experiment.scales for cell in experiment.cells_at(scale)}
    assert {cell.version for cell in experiment.golden} == declared


METHOD_CELLS = [
    cell
    for experiment in EXPERIMENTS.values()
    for scale in experiment.scales
    for cell in experiment.cells_at(scale)
    if {"method", "training", "data"} <= set(cell.settings)
]


@pytest.mark.parametrize("cell", {cell.name: cell for cell in METHOD_CELLS}.values(), ids=lambda cell: cell.name)
def test_every_cell_with_a_method_names_what_exists(cell):
    settings = cell.settings
    options = {key: value for key, value in settings["data"].items() if key != "name"}
    data.find(settings["data"]["name"])(**options)
    assert settings["model"]["name"] in MODELS
    build_method(settings["method"], settings["options"], settings["groups"])
    assert Training(**{**settings["training"], "device": "cpu"})
