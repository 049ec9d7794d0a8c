import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from holdfast.cli.commands.reproduce import default_results_dir, main, parse_seeds
from holdfast.errors import ConfigError
from holdfast.papers.engine import catalog
from holdfast.papers.engine.experiment import Cell
from holdfast.papers.engine.golden import read_golden
from holdfast.papers.engine.store import Store, read_record
from tests.papers import toy
from tests.papers.engine.test_execute import ROOT, until


@pytest.fixture
def use(marks, cache, tmp_path, monkeypatch):
    """Put a toy experiment into the catalog."""
    experiments_of = catalog.experiments_of

    def put(functions=(toy.add, toy.add), **changes):
        toys = (toy.toy_experiment(marks, functions, **changes),)
        monkeypatch.setitem(catalog.PAPERS, "toys", ())
        monkeypatch.setattr(catalog, "experiments_of", lambda paper: toys if paper == "toys" else experiments_of(paper))
        return toys[0]

    monkeypatch.setenv("COLUMNS", "160")
    return put


def run(tmp_path, *arguments):
    """What the command line does, to its exit code."""
    return main([*arguments, "--results-dir", str(tmp_path / "results")])


def results_of(tmp_path, experiment, scale="smoke"):
    return Store(tmp_path / "results", [experiment], scale).results(experiment)


def test_it_shows_ours_beside_theirs_and_verdicts_and_writes_the_results(use, tmp_path, capsys):
    experiment = use()
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0,3", "--jobs", "1") == 0
    said = capsys.readouterr().out
    assert re.search(r"toy/a +1\.5 ± 2\.1 +1\.5 ± 0\.5", said)
    assert re.search(r"toy/b +11\.5 ± 2\.1 +- ", said)
    assert re.search(r"holds +b beats a +by 10\.0", said)
    assert re.search(r"fails +a beats b +in 0 of 2 seeds", said)
    assert re.search(r"not judged +a is large", said)
    assert "make docs" in said
    assert results_of(tmp_path, experiment).seeds == (0, 3)


def test_a_failed_cell_gives_exit_code_1_and_a_file_that_says_so(use, tmp_path, capsys):
    experiment = use((toy.add, toy.broken))
    assert run(tmp_path, "toys/table1", "--scale", "smoke") == 1
    said = capsys.readouterr().out
    assert "failed toy/b, seed 0: the data set isn't there; fetch it" in said
    assert "marked as incomplete" in said
    assert results_of(tmp_path, experiment).failed


def test_a_reason_that_cells_share_is_printed_once(use, tmp_path, capsys):
    use((toy.add, toy.broken))
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0,1,2", "--jobs", "1") == 1
    said = capsys.readouterr().out
    assert said.count("the data set isn't there") == 1
    assert all(f"failed toy/b, seed {seed} for the same reason" in said for seed in (1, 2))


def test_no_number_is_cut_where_the_terminal_is_narrow(use, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    experiment = use(columns={"score": "a heading of many words"}, digits=40)
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0,3", "--jobs", "1") == 0
    printed = capsys.readouterr().out
    found = results_of(tmp_path, experiment)
    assert f"{found.mean('toy/b', 'score'):.40f}" in printed
    table = printed.partition("verdict")[0]
    assert "…" not in table and "many words" in table


def test_a_figure_is_drawn_beside_complete_results(use, tmp_path):
    use(figure="tests.papers.toy:drawn")
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1") == 0
    assert (tmp_path / "results" / "toys" / "table1.smoke.svg").read_text() == "<svg>10.5</svg>"


def test_a_failed_run_does_not_replace_measured_values(use, tmp_path, capsys, marks):
    use()
    assert run(tmp_path, "toys/table1", "--scale", "smoke") == 0
    file = tmp_path / "results" / "toys" / "table1.smoke.json"
    before = file.read_bytes()
    marks.rename(marks.with_name("moved"))
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--fresh") == 0
    assert "failed toy/a" in capsys.readouterr().out
    assert file.read_bytes() == before


def test_fresh_computes_again(use, tmp_path, marks):
    use()
    for arguments in ((), (), ("--fresh",)):
        run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1", *arguments)
    assert len(list(marks.iterdir())) == 8


def test_the_list_says_what_was_measured_when_and_what_holds(use, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    use(scales=("smoke", "cpu"))
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    capsys.readouterr()
    assert run(tmp_path, "--list") == 0
    said = capsys.readouterr().out
    assert re.search(r"toys/table1 +smoke +1/1/1 +\d{4}-\d\d-\d\d [0-9a-f]{7} v1 +Toys", said)
    assert re.search(r"cpu +not run", said)
    assert "spare/table5.1" in said
    monkeypatch.setenv("COLUMNS", "80")
    run(tmp_path, "--list")
    assert "personalization/composition" in capsys.readouterr().out


def raise_version(experiment):
    """The same experiment with the second cell at version 2."""
    first, second = experiment.cells("smoke")
    return {"cells": lambda scale: (first, replace(second, version=2))}


def test_the_list_says_which_results_are_of_an_older_version(use, tmp_path, capsys):
    experiment = use()
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    use(**raise_version(experiment))
    capsys.readouterr()
    run(tmp_path, "--list")
    assert "1 of an older version" in capsys.readouterr().out


def test_claims_are_judged_anew_and_nothing_is_computed(use, tmp_path, capsys, marks):
    experiment = use()
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    computed = len(list(marks.iterdir()))
    use(claims=(replace(experiment.claims[1], name="a is the better one"),))
    assert run(tmp_path, "toys", "--judge") == 0
    said = capsys.readouterr().out
    assert "toys/table1.smoke: a is the better one: new -> fails" in said
    assert "1 claims judged from stored values: 0 holds, 1 fails, 0 not judged." in said
    assert len(list(marks.iterdir())) == computed
    (claim,) = read_record(tmp_path / "results" / "toys" / "table1.smoke.json").claims
    assert claim.name == "a is the better one"


def test_a_recheck_computes_what_was_looked_at_longest_ago_and_records_it(use, tmp_path, capsys, marks):
    use()
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    file = tmp_path / "results" / "toys" / "table1.smoke.json"
    computed = len(list(marks.iterdir()))
    assert run(tmp_path, "toys", "--recheck", "--minutes", "5") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "same toys/table1.smoke:toy/a, seed 0" in said and "2 cells computed again, 0 differ" in said
    assert len(list(marks.iterdir())) == computed + 2
    assert [[check.seed for check in entry.checks] for entry in read_record(file).cells] == [[0], [0]]
    file.write_text(file.read_text().replace("11.0", "11.5"))
    assert run(tmp_path, "toys", "--recheck") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "differs toys/table1.smoke:toy/b, seed 1: score by 0.043 of its size" in said
    file.write_text(file.read_text().replace('"processor": "', '"processor": "older ', 1))
    capsys.readouterr()
    file.write_text(file.read_text().replace("10.0", "10.5"))
    assert run(tmp_path, "toys", "--recheck") == 0
    assert "0 differ or failed, 1 differ from another processor's" in " ".join(capsys.readouterr().out.split())
    last = read_record(file).cells[1].checks[1]
    assert (last.seed, last.metric) == (1, "score") and last.farthest == pytest.approx(0.5 / 11.5)


def test_golden_values_are_recorded_once_and_never_without_a_raised_version(use, tmp_path, capsys):
    value = tmp_path / "value"
    cell = Cell("golden/told", toy.reference(toy.told), {"file": str(value)})

    def recorded():
        kept = read_golden(tmp_path / "results", "toys")["golden/told"]
        return kept.version, kept.values

    use(golden=(cell,))
    value.write_text("2.0")
    assert run(tmp_path, "toys", "--golden") == 0
    assert recorded() == (1, {"loss": 2.0})
    value.write_text("2.1")
    assert run(tmp_path, "toys", "--golden") == 1
    assert "raise its version" in " ".join(capsys.readouterr().out.split())
    assert recorded() == (1, {"loss": 2.0})
    use(golden=(replace(cell, version=2),))
    assert run(tmp_path, "toys", "--golden") == 0
    assert recorded() == (2, {"loss": 2.1})


def test_an_unknown_document_is_answered_with_the_nearest(use, tmp_path):
    use()
    with pytest.raises(ConfigError, match="did you mean 'toys'"):
        run(tmp_path, "toy", "--judge")


def test_two_things_at_once_are_refused(use, tmp_path):
    use()
    with pytest.raises(ConfigError, match="give one of them"):
        run(tmp_path, "toys", "--judge", "--recheck")


def test_an_unknown_experiment_is_refused(use, tmp_path):
    use()
    with pytest.raises(ConfigError, match="did you mean 'toys/table1'"):
        run(tmp_path, "toys/table2")


def test_the_command_gives_the_data_root_to_the_cells(use, tmp_path):
    experiment = use((toy.environment,), claims=(), printed={})
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0", "--data-root", "/") == 0
    assert results_of(tmp_path, experiment).mean("toy/a", "root") == 1


@pytest.mark.parametrize("text", ["", "a", "0,", "0 1", "-1", "0,,1", "1.5"])
def test_seeds_that_are_no_numbers_are_refused(text):
    with pytest.raises(ConfigError, match="separated by commas"):
        parse_seeds(text)


def test_seeds_are_read_as_written():
    assert parse_seeds("0,1,2") == (0, 1, 2)
    assert parse_seeds("7") == (7,)
    assert parse_seeds("3, 1") == (3, 1)


def test_results_lie_in_the_checkout_or_here(tmp_path, monkeypatch):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert default_results_dir() == tmp_path / "deep" / "er" / "results"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "holdfast"\n')
    assert default_results_dir() == tmp_path / "results"


SCRIPT = """
import sys
from pathlib import Path
from holdfast.cli.commands.reproduce import reproduce
from holdfast.papers.engine import catalog
from tests.papers.toy import slow, toy_experiment

if __name__ == "__main__":
    marks, results = map(Path, sys.argv[1:])
    catalog.PAPERS["toys"] = ()
    catalog.experiments_of = lambda paper: (toy_experiment(marks, (slow, slow), seeds=(0, 1)),)
    sys.exit(reproduce("toys/table1", jobs=2, results_dir=results))
"""


def test_control_c_says_how_to_continue_and_writes_no_results(marks, cache, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(marks), str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: process.poll() is not None or len(list(marks.glob("*-1-*"))) == 2)
    os.killpg(process.pid, signal.SIGINT)
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in said
    assert complaints == ""
    assert not (tmp_path / "results").exists()
