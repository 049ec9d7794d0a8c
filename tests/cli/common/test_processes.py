"""`fit --processes` for real: the same results as with one, one folder, and a process that is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from holdfast.cli.common import processes
from holdfast.cli.main import main
from holdfast.errors import ConfigError

FIT = ["fit", "--method", "group-dro", "--batch-size", "1024"]


def start(*arguments, cwd):
    words = [sys.executable, "-m", "holdfast", *FIT, *arguments]
    return subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_leave_one_run_like_that_of_one(tmp_path):
    running = start("--epochs", "1", "--processes", "2", "--out", "2", cwd=tmp_path)
    assert main([*FIT, "--epochs", "1", "--out", str(tmp_path / "1")]) == 0
    _, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    one, two = (load_file(tmp_path / str(n) / "weights.safetensors") for n in (1, 2))
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, atol=1e-5, err_msg=name)
    events = [json.loads(line)["event"] for line in (tmp_path / "2" / "metrics.jsonl").read_text().splitlines()]
    assert events.count("epoch") == events.count("end") == 1
    assert {file.name for file in (tmp_path / "1").iterdir()} == {file.name for file in (tmp_path / "2").iterdir()}


def test_a_killed_process_ends_the_others_with_a_sentence_and_the_run_goes_on(tmp_path):
    process = start("--epochs", "400", "--processes", "2", "--out", "run", "--checkpoint-seconds", "0.1", cwd=tmp_path)
    until = time.monotonic() + 200
    while not (tmp_path / "run/checkpoints/last.safetensors").exists() and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(_children(process.pid)[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "process 1 of 2 was ended by SIGKILL" in " ".join(errors.split())
    assert "Traceback" not in errors


def _children(parent):
    """The processes that a launcher has started, in the order of their ranks."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=True)
    return sorted(int(word) for word in found.stdout.split())[:2]


def test_numbers_of_processes_that_make_no_sense_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match="processes is 0"):
        processes.check_count(0)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="--processes is 2 and a launcher has started 3"):
        processes.check_count(2)
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="says 'many'"):
        processes.launched()


def test_models_that_are_cut_up_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="FSDP"), processes.joined_processes("cpu"):
        pass
