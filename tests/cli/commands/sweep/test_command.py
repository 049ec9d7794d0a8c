"""A sweep is resumable, refuses what is damaged or different, and writes a page and a table."""

import csv
import json

import pytest

from holdfast.cli.commands.sweep import command
from holdfast.cli.main import main
from holdfast.papers.engine import execute as engine

QUICK = ["--data", "digits", "--epochs", "1", "--model-args", "hidden=[8]"]
SWEEP = ["sweep", *QUICK, "--methods", "cvar", "--trials", "2", "--seeds", "2", "--jobs", "1", "--out", "s"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, and trials that are computed in this process: workers have tests of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    computed = []

    def compute(tasks, jobs, environment):
        for task in tasks:
            computed.append((task.cell.name, task.seed))
            worst = 0.5 + 0.1 * task.cell.name.count("cvar") + 0.01 * task.seed
            numbers = {"score": worst, "worst_group": worst, "worst_class": worst, "accuracy": 0.8, "verdict": 0.0}
            yield task, engine.CellOutcome(task.cell.name, task.seed, {**numbers, "cpu_seconds": 0.1}, 0.1)

    monkeypatch.setattr(engine, "_compute", compute)
    return tmp_path, computed


def test_the_page_and_the_table_have_a_row_per_method(here, capsys):
    folder, computed = here
    assert main(SWEEP) == 0
    assert len(computed) == 8
    rows = list(csv.DictReader((folder / "s" / "table.csv").open()))
    assert [row["method"] for row in rows] == ["erm", "cvar"]
    assert float(rows[1]["gain"]) == pytest.approx(0.1)
    page = (folder / "s" / "report.html").read_text()
    assert "cvar" in page and "+10.0" in page
    assert json.loads((folder / "s" / "table.json").read_text())["grouping"] == "class"
    assert "8 trainings" in capsys.readouterr().out


def test_what_is_known_is_not_computed_again_and_what_is_missing_is(here):
    folder, computed = here
    assert main(SWEEP) == 0
    lost = sorted((folder / "s" / "trials").glob("*.json"))[0]
    lost.unlink()
    computed.clear()
    assert main(SWEEP) == 0
    assert len(computed) == 1
    assert lost.exists()


def test_a_longer_sweep_takes_up_a_shorter_one(here):
    _, computed = here
    assert main(SWEEP) == 0
    computed.clear()
    assert main([*SWEEP, "--seeds", "3"]) == 0
    assert {seed for _, seed in computed} == {2}


@pytest.mark.parametrize("damage", [b"", b"{}", b"not json"])
def test_a_damaged_trial_is_refused_by_name_before_anything_is_computed(here, damage, capsys):
    folder, computed = here
    assert main(SWEEP) == 0
    file = sorted((folder / "s" / "trials").glob("*.json"))[0]
    file.write_bytes(damage)
    computed.clear()
    assert main(SWEEP) == 2
    assert file.name in capsys.readouterr().err.replace("\n", "")
    assert computed == []


def test_a_trial_with_changed_numbers_under_another_key_is_refused(here):
    folder, _ = here
    assert main(SWEEP) == 0
    file = sorted((folder / "s" / "trials").glob("*.json"))[0]
    stored = json.loads(file.read_bytes())
    stored["key"]["seed"] = 7
    file.write_text(json.dumps(stored))
    assert main(SWEEP) == 2


def test_other_options_in_the_same_place_are_refused(here, capsys):
    assert main(SWEEP) == 0
    assert main([*SWEEP, "--learning-rate", "0.5"]) == 2
    assert "other options" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--seed", "3"], ["--method", "jtt"], ["--select-by=accuracy"], ["--out-of", "x"]])
def test_options_that_a_sweep_decides_or_nobody_knows_are_refused(here, words):
    with pytest.raises(SystemExit) if words[0] == "--out-of" else _nothing():
        assert main([*SWEEP, *words]) == 2


def test_methods_that_need_groups_nobody_gave_are_refused(here, capsys):
    assert main(["sweep", *QUICK, "--methods", "group-dro", "--out", "s"]) == 2
    assert "group-dro" in capsys.readouterr().err


def test_an_option_that_is_given_is_not_drawn(here):
    folder, _ = here
    assert main([*SWEEP, "--learning-rate", "0.5", "--out", "t"]) == 0
    words = [json.loads(file.read_bytes())["key"] for file in (folder / "t" / "trials").glob("*.json")]
    assert words
    rows = json.loads((folder / "t" / "table.json").read_text())["rows"]
    assert all("learning-rate" not in row["settings"] for row in rows)


def test_a_folder_that_is_no_sweep_is_left_alone(here):
    folder, _ = here
    (folder / "s").mkdir()
    (folder / "s" / "mine.txt").write_text("x")
    assert main(SWEEP) == 2
    assert [file.name for file in (folder / "s").iterdir()] == ["mine.txt"]


def test_a_trial_is_a_training_with_the_numbers_that_a_sweep_compares():
    from holdfast.cli.commands.sweep.trial import run_trial

    made = run_trial({"words": [*QUICK, "--method", "erm", "--select-by", "worst_class"]}, 0)
    assert 0 <= made["worst_class"] <= made["accuracy"] <= 1
    assert made["verdict"] == max(value for name, value in made.items() if name.startswith("check "))
    assert made["cpu_seconds"] > 0


def test_the_sentence_about_damage_names_the_remedy(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(command.CheckpointError, match="delete it"):
        command.check_trials(tmp_path)


def _nothing():
    from contextlib import nullcontext

    return nullcontext()
