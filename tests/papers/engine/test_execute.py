import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.execute import default_cache, execute
from holdfast.papers.engine.experiment import Cell
from tests.papers import toy

ROOT = Path(__file__).resolve().parents[3]


def cell(marks, base=0, function=toy.add, name=None, **settings):
    settings = {"marks": str(marks), "base": base, "quick": [0], **settings}
    return Cell(name or f"toy/{base}", toy.reference(function), settings)


def count(marks):
    return len(list(marks.iterdir()))


def scores(outcomes):
    return [(outcome.cell, outcome.seed, outcome.metrics) for outcome in outcomes]


def test_parallel_gives_what_serial_gives_in_the_same_order(marks, tmp_path):
    cells = [cell(marks, base) for base in (0, 10, 20)]
    serial = execute(cells, (0, 1), cache=tmp_path / "one", jobs=1)
    parallel = execute(cells, (0, 1), cache=tmp_path / "two", jobs=3)
    assert scores(serial) == scores(parallel)
    assert [(o.cell, o.seed, o.metrics["score"]) for o in serial][:3] == [
        ("toy/0", 0, 0),
        ("toy/0", 1, 1),
        ("toy/10", 0, 10),
    ]
    assert count(marks) == 12


def test_a_second_run_computes_nothing_and_says_the_same(marks, cache):
    first = execute([cell(marks)], (0, 1), cache=cache, jobs=1)
    heard = []
    second = execute([cell(marks)], (0, 1), cache=cache, jobs=1, listener=heard.append)
    assert count(marks) == 2
    assert scores(first) == scores(second)
    assert [outcome.cached for outcome in (*first, *second)] == [False, False, True, True]
    assert tuple(heard) == second


def test_another_seed_setting_or_name_computes_only_what_is_new(marks, cache):
    execute([cell(marks)], (0,), cache=cache, jobs=1)
    execute([cell(marks)], (0, 1), cache=cache, jobs=1)
    assert count(marks) == 2
    execute([cell(marks, more=1)], (0,), cache=cache, jobs=1)
    assert count(marks) == 3
    renamed = execute([cell(marks, name="toy/new")], (0,), cache=cache, jobs=1)
    assert count(marks) == 3
    assert renamed[0].cell == "toy/new"


def test_a_raised_version_computes_anew(marks, cache):
    execute([cell(marks)], (0,), cache=cache, jobs=1)
    execute([replace(cell(marks), version=2)], (0,), cache=cache, jobs=1)
    execute([replace(cell(marks), version=2)], (0,), cache=cache, jobs=1)
    assert count(marks) == 2


def test_an_outcome_remembers_where_it_was_computed(marks, cache):
    first = execute([cell(marks)], (0,), cache=cache, jobs=1)
    again = execute([cell(marks)], (0,), cache=cache, jobs=1)
    assert again[0].origin == first[0].origin
    assert {"commit", "date", "torch", "numpy", "processor", "cpus"} <= set(first[0].origin)


def test_fresh_computes_what_is_known(marks, cache):
    execute([cell(marks)], (0,), cache=cache, jobs=1)
    outcome = execute([cell(marks)], (0,), cache=cache, jobs=1, fresh=True)
    assert count(marks) == 2
    assert not outcome[0].cached


def test_damaged_cache_files_are_computed_again_and_mended(marks, cache):
    seeds = range(6)
    first = execute([cell(marks)], seeds, cache=cache)
    files = sorted(cache.iterdir())
    healthy = {file: json.loads(file.read_text()) for file in files}
    nonsense = [
        "",
        "{",
        "[]",
        '{"key": {}}',
        json.dumps({**healthy[files[4]], "metrics": {"score": None}}),
        json.dumps({**healthy[files[5]], "key": {**healthy[files[5]]["key"], "seed": 99}}),
    ]
    for file, text in zip(files, nonsense, strict=True):
        file.write_text(text)
    again = execute([cell(marks)], seeds, cache=cache)
    assert scores(again) == scores(first)
    assert not any(outcome.cached for outcome in again)
    assert count(marks) == 12
    assert [json.loads(file.read_text())["key"] for file in files] == [kept["key"] for kept in healthy.values()]


def test_a_failing_cell_is_reported_and_the_others_go_on(marks, cache):
    cells = [cell(marks, 1, toy.broken), cell(marks, 2), cell(marks, 3)]
    outcomes = execute(cells, (0, 1), cache=cache, jobs=1)
    assert [outcome.error for outcome in outcomes[:2]] == ["the data set isn't there; fetch it"] * 2
    assert [outcome.metrics["score"] for outcome in outcomes[2:]] == [2, 3, 3, 4]
    assert len(list(cache.iterdir())) == 4
    execute(cells, (0, 1), cache=cache, jobs=1)
    assert count(marks) == 8


def test_a_bug_in_a_cell_is_reported_with_its_kind_and_logged_with_its_place(marks, cache, caplog):
    (outcome,) = execute([cell(marks, 1, toy.buggy)], (0,), cache=cache, jobs=1)
    assert outcome.error == "KeyError: 'nothing'"
    assert "toy.py" in caplog.text
    assert "buggy" in caplog.text


def test_a_process_that_dies_takes_only_its_own_cell_along(marks, cache):
    outcomes = execute([cell(marks, 1, toy.suicidal), cell(marks, 2), cell(marks, 3)], (0,), cache=cache, jobs=1)
    assert "killed by signal 9" in outcomes[0].error
    assert [outcome.metrics["score"] for outcome in outcomes[1:]] == [2, 3]


def test_a_metric_that_is_no_finite_number_is_an_error(marks, cache):
    (outcome,) = execute([cell(marks, 1, toy.undefined)], (0,), cache=cache, jobs=1)
    assert "nan for 'score'" in outcome.error
    assert not list(cache.iterdir())


def test_a_cell_runs_on_one_thread_in_another_process_with_the_given_environment(marks, cache):
    variables = {"HOLDFAST_DATA": "/here"}
    (outcome,) = execute([cell(marks, 1, toy.environment)], (0,), cache=cache, environment=variables)
    assert outcome.metrics["threads"] == 1
    assert outcome.metrics["root"] == 5
    assert outcome.metrics["pid"] != os.getpid()


def test_settings_that_are_not_plain_are_refused_before_anything_runs(marks, cache):
    with pytest.raises(ConfigError, match="plain JSON"):
        execute([cell(marks, 1), cell(marks, 2, odd={1, 2})], (0,), cache=cache)
    assert count(marks) == 0


def test_a_cache_that_can_not_be_made_is_refused(marks, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="HOLDFAST_CACHE"):
        execute([cell(marks)], (0,), cache=tmp_path / "file" / "cells")


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", "/somewhere")
    assert default_cache() == Path("/somewhere/cells")
    monkeypatch.delenv("HOLDFAST_CACHE")
    assert default_cache() == Path("~/.cache/holdfast/cells").expanduser()


# ----------------------------------------------------------------------------------------- a run that is stopped

SCRIPT = """
import sys
from pathlib import Path
from holdfast.papers.engine.execute import execute
from tests.papers.engine.test_execute import cell
from tests.papers.toy import slow

if __name__ == "__main__":
    marks, cache = map(Path, sys.argv[1:])
    try:
        execute([cell(marks, 0, slow), cell(marks, 1, slow)], (0, 1), cache=cache, jobs=2)
    except KeyboardInterrupt:
        sys.exit("stopped")
"""


def start_slow_run(marks, cache, tmp_path):
    """Two cells whose seed 0 finishes at once and whose seed 1 takes forever, once both are in the latter."""
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(marks), str(cache)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: process.poll() is not None or len(list(marks.glob("*-1-*"))) == 2)
    assert process.poll() is None
    until(lambda: cache.exists() and len(list(cache.glob("*.json"))) == 2)
    return process


def until(condition, tries=2400):
    for _ in range(tries):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def workers(marks):
    return {int(file.name.split("-")[2]) for file in marks.iterdir()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_and_continues_where_it_was(marks, cache, tmp_path, number):
    process = start_slow_run(marks, cache, tmp_path)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (1 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert said.strip() == "stopped"
    until(lambda: not any(is_running(pid) for pid in workers(marks)))
    assert count(marks) == 4
    (tmp_path / "go").touch()
    resumed = execute([cell(marks, base, toy.slow) for base in (0, 1)], (0, 1), cache=cache)
    assert [outcome.cached for outcome in resumed] == [True, False, True, False]
    assert [outcome.metrics["score"] for outcome in resumed] == [0, 1, 0, 1]
    assert count(marks) == 6
