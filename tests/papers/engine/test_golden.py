"""Golden cells give what they gave, whatever moved since; and they reach every module that decides a number."""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch

import holdfast
from holdfast.papers.engine.catalog import FORMER_NAMES, PAPERS, every_experiment, experiments_of
from holdfast.papers.engine.experiment import Cell
from holdfast.papers.engine.golden import (
    compute,
    differences,
    from_json,
    golden_cells,
    golden_file,
    read_golden,
    record,
)
from holdfast.papers.engine.kinds import key_of
from holdfast.primitives.threads import torch_threads
from tests.papers import toy

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(holdfast.__file__).parent
RESULTS = ROOT / "results"

#: Modules that decide no number of a document's experiment, or that no golden cell can reach, with the reason.
UNREACHED = ROOT / "tests" / "papers" / "engine" / "unreached.json"

#: Rooms whose modules decide numbers.
DECIDING = (
    "coresets",
    "data",
    "federated",
    "finetuning",
    "models",
    "multimodal",
    "poisoning",
    "primitives",
    "spurious",
    "training",
)

CELLS = {f"{paper}: {name}": cell for paper in PAPERS for name, cell in golden_cells(experiments_of(paper)).items()}

together = pytest.mark.xdist_group("golden")  # one process computes all of them once, and knows what they reached


@cache
def computed(label):
    """What a golden cell gives, and the files of holdfast in which functions were entered on the way."""
    import_everything()  # what is only entered while a module is imported is not reached by a computation
    with torch_threads(int(os.environ.get("HOLDFAST_GOLDEN_THREADS", "1"))), entered() as files:
        values = compute(CELLS[label])
    return values, files


@cache
def import_everything():
    for room in DECIDING:
        for module in pkgutil.walk_packages([str(PACKAGE / room)], f"holdfast.{room}."):
            importlib.import_module(module.name)


@contextmanager
def entered():
    """The files of the package in which a function is entered within the block, in any thread."""
    files, seen, prefix = set(), set(), str(PACKAGE) + os.sep

    def note(frame, event, argument):
        if event == "call" and (code := frame.f_code) not in seen:
            seen.add(code)
            if code.co_filename.startswith(prefix) and code.co_flags & inspect.CO_OPTIMIZED:  # neither module nor class
                files.add(code.co_filename.removeprefix(prefix))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@together
@pytest.mark.golden
@pytest.mark.parametrize("label", CELLS)
def test_a_golden_cell_gives_what_it_gave(label):
    paper, _, name = label.partition(": ")
    kept = read_golden(RESULTS, paper)
    assert name in kept and kept[name].key == key_of(CELLS[label]), f"record it: holdfast reproduce {paper} --golden"
    assert kept[name].version == CELLS[label].version, f"record the new version: holdfast reproduce {paper} --golden"
    changed = differences(kept[name].values, computed(label)[0])
    assert not changed, f"raise the version if this is meant: {'; '.join(changed)}"


@together
@pytest.mark.golden
def test_golden_cells_reach_every_module_that_decides_a_number():
    reached = set().union(*(computed(label)[1] for label in CELLS))
    deciding = {
        file.relative_to(PACKAGE).as_posix()
        for room in DECIDING
        for file in (PACKAGE / room).rglob("*.py")
        if has_code(file)
    }
    listed = json.loads(UNREACHED.read_text())
    assert all(reason.strip() for reason in listed.values())
    assert dict.fromkeys(sorted(deciding - reached - set(listed)), "say why, or reach it") == {}
    assert sorted(set(listed) & reached) == [], "these are reached now"
    assert sorted(set(listed) - deciding) == [], "these are no longer there"


def has_code(file):
    """Whether a module has a function with a body of its own."""
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    return any(not isinstance(node.body[-1], ast.Raise | ast.Pass) for node in functions)


def test_every_experiment_has_one_or_two_golden_cells_that_are_kept():
    kept = {paper: read_golden(RESULTS, paper) for paper in PAPERS}
    for experiment in every_experiment():
        assert 1 <= len(experiment.golden) <= 2, experiment.name
        assert {cell.name for cell in experiment.golden} <= set(kept[experiment.paper]), experiment.name


def test_no_value_is_kept_of_a_cell_that_is_gone():
    for paper in PAPERS:
        assert set(read_golden(RESULTS, paper)) == set(golden_cells(experiments_of(paper)))


# ----------------------------------------------------------------------- no changed value without a raised version


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("paper", PAPERS)
def test_a_golden_value_never_changed_without_a_raised_version(paper):
    """Every state of the file that was ever committed, under any of its names, and today's, against those before."""
    try:
        states = committed(golden_file(Path("results"), name).as_posix() for name in names_of(paper))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not in a repository")
    states.append(golden_file(RESULTS, paper).read_text())
    assert tampered(states) == []


def names_of(paper):
    """What a document is called, and was called before."""
    return [paper, *(before for before, today in FORMER_NAMES.items() if today == paper)]


def committed(names):
    """Every state of a file that was ever committed, oldest first; renamed files go by several names."""
    names = list(names)
    states = []
    for commit in git("log", "--format=%H", "--reverse", "--", *names).split():
        there = git("ls-tree", "--name-only", commit, "--", *names).split()
        states += [git("show", f"{commit}:{name}") for name in there]
    return states


@pytest.mark.parametrize("paper", FORMER_NAMES.values())
def test_the_history_of_a_renamed_file_begins_before_its_renaming(paper):
    today, *before = (golden_file(Path("results"), name).as_posix() for name in names_of(paper))
    try:
        older = committed(before)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not in a repository")
    if not older:
        pytest.skip("not the whole history")
    assert committed([today, *before])[: len(older)] == older


def tampered(states):
    """Cells whose values changed though neither they nor their version did, over the states of a file."""
    highest, found = {}, []
    for state in states:
        stored = json.loads(state)
        if any("key" not in entry for entry in stored.values()):
            continue  # of the days in which golden cells were being written
        for name, golden in ((f"{name} {each.key}", each) for name, each in from_json(stored).items()):
            before = highest.get(name)
            if before is None or golden.version > before.version:
                highest[name] = golden
            elif golden.version < before.version or differences(before.values, golden.values):
                found.append(name)
    return found


def state(version, loss, key="k"):
    return json.dumps({"golden/a": {"version": version, "key": key, "values": {"loss": loss}}})


def test_a_value_changed_in_place_is_noticed():
    assert tampered([state(1, 0.5), state(1, 0.5), state(2, 0.7)]) == []
    assert tampered([state(1, 0.5), state(1, 0.501)]) == ["golden/a k"]
    assert tampered([state(1, 0.5), state(2, 0.7), state(1, 0.5)]) == ["golden/a k"]
    assert tampered([state(1, 0.5), "{}", state(1, 0.7)]) == ["golden/a k"]
    assert tampered([state(1, 0.5), state(1, 0.7, key="another cell")]) == []


# -------------------------------------------------------------------------------------------------- the functions


def test_rounding_passes_and_a_change_does_not():
    kept = {"loss": 0.5, "weights|norm": 100.0, "weights|wave": 1e-9}
    assert differences(kept, {"loss": 0.5 * (1 + 1e-6), "weights|norm": 100.0001, "weights|wave": 2e-9}) == []
    assert differences(kept, {**kept, "loss": 0.5001}) == ["loss was 0.5 and is 0.5001"]
    assert differences(kept, {**kept, "loss": float("nan")}) == ["loss was 0.5 and is nan"]
    assert differences(kept, {"loss": 0.5, "weights|norm": 100.0}) == ["weights|wave is missing now"]
    assert differences({"loss": 0.5}, {"loss": 0.5, "more": 1.0}) == ["more is new"]


def test_a_kind_that_tells_nothing_can_have_no_golden_cell(tmp_path):
    silent = Cell("golden/silent", toy.reference(toy.add), {"marks": str(tmp_path), "base": 1})
    with pytest.raises(holdfast.errors.ConfigError, match="tells the witness nothing"):
        compute(silent)


def test_two_golden_cells_of_one_name_are_refused(tmp_path):
    cell = Cell("golden/a", toy.reference(toy.told), {"file": "one"})
    other = Cell("golden/a", toy.reference(toy.told), {"file": "two"})
    one, two = (toy.toy_experiment(tmp_path, golden=(each,)) for each in (cell, other))
    assert golden_cells([one, one]) == {"golden/a": cell}
    with pytest.raises(holdfast.errors.ConfigError, match="another golden cell called 'golden/a'"):
        golden_cells([one, two])


def test_an_older_version_is_not_recorded_over_a_newer_one(tmp_path):
    cell = Cell("golden/a", toy.reference(toy.told), {"file": "one"}, version=2)
    assert record(tmp_path, "toys", {"golden/a": cell}, {"golden/a": {"loss": 1.0}}) == []
    older = Cell("golden/a", cell.kind, cell.settings)
    (refused,) = record(tmp_path, "toys", {"golden/a": older}, {"golden/a": {"loss": 1.0}})
    assert "older than 2" in refused


def test_the_tracer_sees_functions_and_not_imports():
    with entered() as files:
        inspect.unwrap(differences)({}, {})
    assert files == {"papers/engine/golden.py"}
    assert torch.get_num_threads() >= 1
