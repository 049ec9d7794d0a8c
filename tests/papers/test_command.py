import json
import os
import re
import signal
import subprocess
import sys

import pytest

from holdfast.cli.reproduce import default_results_dir, main, parse_seeds
from holdfast.errors import ConfigError
from holdfast.papers.engine.catalog import EXPERIMENTS
from holdfast.papers.engine.results import read_results
from tests.papers import toy
from tests.papers.test_execute import ROOT, until


@pytest.fixture
def use(marks, cache, tmp_path, monkeypatch):
    """Put a toy experiment into the catalog."""

    def put(functions=(toy.add, toy.add), **changes):
        monkeypatch.setitem(EXPERIMENTS, "toys/table1", toy.toy_experiment(marks, functions, **changes))

    monkeypatch.setenv("COLUMNS", "160")
    return put


def run(tmp_path, *arguments):
    """What the command line does, to its exit code."""
    return main([*arguments, "--results-dir", str(tmp_path / "results")])


def test_it_shows_ours_beside_theirs_and_verdicts_and_writes_the_results(use, tmp_path, capsys):
    use()
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0,3", "--jobs", "1") == 0
    said = capsys.readouterr().out
    assert re.search(r"toy/a +1\.5 ± 2\.1 +1\.5 ± 0\.5", said)
    assert re.search(r"toy/b +11\.5 ± 2\.1 +- ", said)
    assert re.search(r"holds +b beats a +by 10\.0", said)
    assert re.search(r"fails +a beats b +in 0 of 2 seeds", said)
    assert re.search(r"not checked +a is large", said)
    assert "make docs" in said
    assert read_results(tmp_path / "results" / "toys" / "table1.smoke.json").seeds == (0, 3)


def test_a_failed_cell_gives_exit_code_1_and_a_file_that_says_so(use, tmp_path, capsys):
    use((toy.add, toy.broken))
    assert run(tmp_path, "toys/table1", "--scale", "smoke") == 1
    said = capsys.readouterr().out
    assert "failed toy/b, seed 0: the data set isn't there; fetch it" in said
    assert "marked as incomplete" in said
    assert not read_results(tmp_path / "results" / "toys" / "table1.smoke.json").complete


def test_no_number_is_cut_where_the_terminal_is_narrow(use, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    use(columns={"score": "a heading of many words"}, digits=40)
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0,3", "--jobs", "1") == 0
    printed = capsys.readouterr().out
    found = read_results(tmp_path / "results" / "toys" / "table1.smoke.json")
    assert f"{found.mean('toy/b', 'score'):.40f}" in printed
    table = printed.partition("verdict")[0]
    assert "…" not in table and "many words" in table


def test_a_figure_is_drawn_beside_complete_results(use, tmp_path, capsys):
    use(figure=lambda results: f"<svg>{results.mean('toy/b', 'score')}</svg>")
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1") == 0
    figure = tmp_path / "results" / "toys" / "table1.smoke.svg"
    assert figure.read_text() == "<svg>10.5</svg>"
    assert str(figure) in capsys.readouterr().out.replace("\n", "")
    figure.unlink()
    use((toy.add, toy.broken), figure=lambda results: f"<svg>{results.mean('toy/b', 'score')}</svg>")
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--fresh") == 1
    assert not figure.exists()


def test_an_incomplete_run_does_not_replace_complete_results(use, tmp_path, capsys):
    use()
    assert run(tmp_path, "toys/table1", "--scale", "smoke") == 0
    file = tmp_path / "results" / "toys" / "table1.smoke.json"
    before = file.read_bytes()
    use((toy.add, toy.broken))
    assert run(tmp_path, "toys/table1", "--scale", "smoke") == 1
    assert file.read_bytes() == before
    assert "are kept" in " ".join(capsys.readouterr().out.split())


def test_fresh_computes_again(use, tmp_path, marks):
    use()
    for arguments in ((), (), ("--fresh",)):
        run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1", *arguments)
    assert len(list(marks.iterdir())) == 8


def test_the_list_says_what_holds_and_what_is_stale(use, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    use(scales=("smoke", "cpu"))
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    capsys.readouterr()
    assert run(tmp_path, "--list") == 0
    said = capsys.readouterr().out
    assert re.search(r"toys/table1 +smoke +1/2 hold +up to date +\d{4}-\d\d-\d\d +Toys", said)
    assert re.search(r"cpu +not run", said)
    assert "spare/table5.1" in said
    monkeypatch.setenv("COLUMNS", "80")
    run(tmp_path, "--list")
    assert "spurious-personalization/composition" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "160")
    use(scales=("smoke", "cpu"), claims=())
    run(tmp_path)
    assert "stale: declaration changed" in capsys.readouterr().out
    (tmp_path / "results" / "toys" / "table1.smoke.json").write_text("{")
    run(tmp_path)
    assert "unreadable" in capsys.readouterr().out


def test_the_list_names_the_code_that_changed(use, tmp_path, capsys):
    use()
    run(tmp_path, "toys/table1", "--scale", "smoke", "--jobs", "1")
    file = tmp_path / "results" / "toys" / "table1.smoke.json"
    stored = json.loads(file.read_text())
    stored["fingerprint"]["sources"]["errors"] = "older"
    file.write_text(json.dumps(stored))
    capsys.readouterr()
    run(tmp_path, "--list")
    assert "stale: errors changed since" in capsys.readouterr().out


def test_stale_results_are_confirmed_by_a_sample(use, tmp_path, capsys):
    use()
    run(tmp_path, "toys/table1", "--scale", "smoke")
    file = tmp_path / "results" / "toys" / "table1.smoke.json"
    stored = json.loads(file.read_text())
    stored["fingerprint"]["sources"]["errors"] = "of an earlier day"
    file.write_text(json.dumps(stored))
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--confirm", "1") == 0
    assert "Confirmed under seed" in capsys.readouterr().out
    run(tmp_path, "--list")
    assert "up to date, confirmed" in capsys.readouterr().out
    for cell in stored["cells"]:
        cell["metrics"]["score"]["ours"]["values"] = [0.5, 0.5]
    file.write_text(json.dumps(stored))
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--confirm", "1") == 1
    assert "0.5 then" in capsys.readouterr().out
    assert json.loads(file.read_text()) == stored


def test_an_unknown_experiment_is_refused(use, tmp_path):
    use()
    with pytest.raises(ConfigError, match="did you mean 'toys/table1'"):
        run(tmp_path, "toys/table2")


def test_the_command_gives_the_data_root_to_the_cells(use, tmp_path):
    use((toy.environment,), claims=(), printed={})
    assert run(tmp_path, "toys/table1", "--scale", "smoke", "--seeds", "0", "--data-root", "/") == 0
    results = read_results(tmp_path / "results" / "toys" / "table1.smoke.json")
    assert results.mean("toy/a", "root") == 1


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
from holdfast.cli.reproduce import reproduce
from holdfast.papers.engine.catalog import EXPERIMENTS
from tests.papers.toy import slow, toy_experiment

if __name__ == "__main__":
    marks, results = map(Path, sys.argv[1:])
    EXPERIMENTS["toys/table1"] = toy_experiment(marks, (slow, slow), seeds=(0, 1))
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
