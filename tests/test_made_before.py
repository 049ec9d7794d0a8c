"""Run directories, configurations and checkpoints that were made by an earlier commit are still understood.

The folders under ``tests/fixtures/made_before`` were written at commit 6ab639a: a finished and a killed run of ``fit``
and of ``federate`` each, with the same options. Those of EPIC and CREST, PDE and CRAIG are killed toy trainings of
commit 78b2712, whose checkpoints held the history of the choices.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from holdfast.cli.main import main
from holdfast.poisoning import Epic
from holdfast.spurious import Pde
from holdfast.training import Run
from holdfast.training.policy import as_chain
from tests.training.test_resume import POLICIES, SETTINGS, train

BEFORE = Path(__file__).parent / "fixtures" / "made_before"


@pytest.fixture
def old(tmp_path):
    """A copy of a folder that may be written to."""
    return lambda name: shutil.copytree(BEFORE / name, tmp_path / name)


def results(path):
    return json.loads((path / "results.json").read_text())


@pytest.mark.parametrize("name", ["fit", "federation"])
def test_a_finished_run_still_gets_its_page(old, name):
    run = old(name)
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").stat().st_size > 10_000


def test_a_killed_training_ends_as_it_would_have(old):
    run = old("fit-killed")
    assert not any(run.glob("plans/*"))  # git keeps no empty folder, so a clone has none
    assert main(["fit", "--resume", str(run)]) == 0
    now, then = results(run), results(BEFORE / "fit")
    assert now["best_epoch"] == then["best_epoch"]
    assert now["test"]["averages"] == pytest.approx(then["test"]["averages"], abs=2e-3)  # another processor may round


@pytest.mark.parametrize("name", ["epic >> crest", "pde", "craig"])
def test_choices_that_stood_in_a_checkpoint_are_still_known(old, tmp_path, name):
    folder = name.replace(" >> ", "-") + "-killed"
    then, now, again = POLICIES[name](), POLICIES[name](), POLICIES[name]()
    first = replace(SETTINGS, ties="first")  # which of equal epochs was kept then
    expected = train(then, Run.create(tmp_path / "straight", {}), settings=first)
    went_on = train(now, Run.open(old(folder)), settings=first)
    read = Run.open(tmp_path / folder)
    (read.path / "results.json").unlink()
    train(
        again, read, settings=first
    )  # from the last checkpoint of today and the history that was moved to metrics.jsonl
    for policy in (now, again):
        assert choices(policy) == choices(then)
    for key, weight in expected.model.state_dict().items():
        assert torch.allclose(weight, went_on.model.state_dict()[key], atol=1e-3)  # another processor may round


def choices(policy):
    """What the members of a chain say that they chose."""
    told = []
    for member in as_chain(policy).members:
        if isinstance(member, Epic):
            told += [(drop.epoch, drop.ids.tolist(), drop.sizes.tolist()) for drop in member.drops]
        elif isinstance(member, Pde):
            told += [(epoch, added.tolist()) for epoch, added in member.additions.items()]
        else:
            told += [(record["step"], record.get("pool")) for record in member.accounts.selections]
    assert told
    return told


def test_a_killed_federation_ends_as_it_would_have(old):
    run = old("federation-killed")
    assert main(["federate", "--resume", str(run)]) == 0
    now, then = results(run), results(BEFORE / "federation")
    assert now["fingerprint"] == then["fingerprint"] and now["settings"] == then["settings"]
    assert now["models"].keys() == then["models"].keys()
    assert now["personalize"]["ditto-auto"]["start"] == "initial"  # where all personal models started then
    for method, scores in then["models"].items():
        assert now["models"][method]["pooled"] == pytest.approx(scores["pooled"], abs=5e-3), method


@pytest.mark.parametrize(
    ("name", "given", "scored"),
    [
        ("fit", [], lambda results: results["test"]["averages"]["test mix"]),
        ("federation", [], lambda results: results["models"]["global"]["pooled"]),
        (
            "federation",
            ["--client", "all", "--method", "finetuning"],
            lambda results: results["models"]["finetuning"]["pooled"],
        ),
    ],
)
def test_the_models_of_a_finished_run_still_predict_and_are_exported(tmp_path, name, given, scored):
    assert main(["predict", str(BEFORE / name), "--out", str(tmp_path / "p.parquet"), *given]) == 0
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    right = [label == word for label, word in zip(table["label"], table["predicted"], strict=True)]
    assert sum(right) / len(right) == pytest.approx(scored(results(BEFORE / name)), abs=2e-3)
    assert main(["export", str(BEFORE / name), "--to", "torch-export", "--out", str(tmp_path / "m.pt2")]) == 0


def test_an_old_configuration_starts_a_new_run(tmp_path):
    config = BEFORE / "fit" / "config.yaml"
    assert main(["fit", "--config", str(config), "--epochs", "1", "--out", str(tmp_path / "new")]) == 0
    assert results(tmp_path / "new")["full_epochs"] > 0


@pytest.mark.parametrize(
    ("name", "kind"), [("fit", "fit"), ("federation", "federation"), ("federation-killed", "federation")]
)
def test_an_old_run_did_not_say_its_kind_and_is_recognised(name, kind):
    run = Run.open(BEFORE / name)
    assert "kind" not in run.environment and run.kind == kind


@pytest.mark.parametrize(
    ("config", "kind"),
    [({"task": "clip", "method": "erm"}, "clip"), ({"budget": "50%", "clusters": 9, "by_source": True}, "selection")],
)
def test_old_configurations_of_other_kinds_are_recognised(tmp_path, config, kind):
    run = Run.create(tmp_path / "run", config)
    known = {key: value for key, value in run.environment.items() if key != "kind"}
    (run.path / "environment.json").write_text(json.dumps(known))
    assert run.kind == kind
