import itertools
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.federated.report import Row, against, compare, ditto_speeds, largest_difference, speeds, targets_table
from benchmarks.federated.stored import Stored
from benchmarks.federated.watch import run_watched
from benchmarks.federated.workload import WORKLOADS, Workload, find_workload, flat, tiny

ROW = Row("w1", "ours", 0, speed=100.0, best=110.0, first=3.0, pss=10, rss=20, cpu=5.0, load=0.0, digest=1.0)


def row(workload: str, system: str, turn: int = 0, **figures: float) -> Row:
    return replace(ROW, workload=workload, system=system, turn=turn, **figures)


@pytest.mark.parametrize(
    ("name", "parameters"), [("logistic", 7_850), ("mlp", 79_510), ("w1", 20_522), ("w2", 1_626_442), ("many", 610)]
)
def test_models_have_the_parameters_of_the_peers_page(name: str, parameters: int) -> None:
    assert len(flat(WORKLOADS[name].new_model())) == parameters


def test_a_workload_with_another_number_of_clients_keeps_the_rest() -> None:
    assert find_workload("w1@1000") == replace(WORKLOADS["w1"], clients=1000, rounds=4)
    assert find_workload("w1@10").rounds == 4 * WORKLOADS["w1"].rounds


def test_training_is_plain_sgd_on_batches_in_order_and_dittos_adds_the_pull() -> None:
    workload = Workload(tiny, (60,), examples=25, dtype=torch.float64)
    x, y = workload.client(3)
    for towards in (None, {"0.weight": torch.ones(10, 60), "0.bias": torch.ones(10)}):
        model = workload.new_model()
        weight, bias = (parameter.detach().clone() for parameter in model.parameters())
        workload.train(model, x, y, towards)
        for start in (0, 10, 20):
            a, b = x[start : start + 10], y[start : start + 10]
            error = (a @ weight.T + bias).softmax(1) - torch.nn.functional.one_hot(b, 10)
            step = error.T @ a / len(a), error.mean(0)
            if towards is not None:
                step = step[0] + (weight - 1), step[1] + (bias - 1)
            weight, bias = weight - 0.05 * step[0], bias - 0.05 * step[1]
        torch.testing.assert_close(flat(model), torch.cat([weight.flatten(), bias]), rtol=1e-12, atol=1e-14)


def test_the_first_round_starts_the_clock_and_is_not_counted() -> None:
    assert speeds([100.0, 101.0, 103.0, 107.0], clients=8) == (4.0, 8.0)


def test_weights_are_compared_element_by_element() -> None:
    reference = np.array([1.0, -2.0, 0.5], dtype=np.float32)
    swapped = reference[[0, 2, 1]]
    assert largest_difference(swapped, reference) == pytest.approx(2.5 / 2.0)
    assert largest_difference(reference, reference) == 0


def test_ratios_are_taken_within_a_pass_against_the_best_of_the_peers() -> None:
    rows = [
        *(row("w1", "ours", 0, speed=100), row("w1", "pfl", 0, speed=20), row("w1", "loop", 0, speed=50)),
        *(row("w1", "ours", 1, speed=30), row("w1", "pfl", 1, speed=15), row("w1", "loop", 1, speed=10)),
        row("w1", "ours", 2, speed=1000),
    ]
    assert against(rows, "w1", ("pfl", "loop"), lambda one: one.speed) == (2.0, 2.0)


def test_dittos_base_is_pfllibs_speed_scaled_by_the_loop_in_the_same_pass() -> None:
    rows = [row("w1", "loop", speed=136), row("ditto", "ours", speed=168), row("ditto", "loop", speed=1)]
    assert ditto_speeds(rows) == (3.0,)


@pytest.mark.parametrize(("ours", "pfl", "verdicts"), [(1e-9, 1e-3, "PASS FAIL"), (2e-6, 2e-6, "FAIL PASS")])
def test_a_system_that_computes_something_else_fails_the_table(ours, pfl, verdicts) -> None:
    rows = [row("w1", "ours", digest=1.00001), row("w1", "loop", digest=1.0, speed=10)]
    table = targets_table(compare(rows, {"w1": {"ours": ours, "pfl": pfl}}))
    lines = {line.split(" |")[0]: line for line in table.splitlines()}
    own, others = (
        next(line for name, line in lines.items() if part in name) for part in ("double precision", "the same of")
    )
    assert [line.split(" | ")[-1].strip(" |") for line in (own, others)] == verdicts.split()
    assert "1e-05" in next(line for name, line in lines.items() if "final digest" in name)
    assert "PASS" in next(line for name, line in lines.items() if "clients/s" in name)


def test_one_bad_pass_is_enough_to_miss_the_target_of_every_pass() -> None:
    fast = [row("w1", "ours", turn, speed=speed) for turn, speed in enumerate((200, 150, 200))]
    rows = [*fast, *(row("w1", "loop x2", turn, speed=100) for turn in range(3))]
    worst = next(one for one in compare(rows, {}) if "worst pass" in one.name)
    assert (worst.ratio.value, worst.ratio.met) == (1.5, False)


def test_parts_of_a_benchmark_are_kept_workload_by_workload(tmp_path) -> None:
    file, small, large = tmp_path / "runs.json", {"cores": 2}, {"cores": 64}
    first = Stored((row("w1", "ours", commit="a"), row("gru", "ours", commit="a")), {"w1": {"ours": 0.0}})
    Stored().with_more(first, small).write(file)
    again = Stored((row("w1", "ours", commit="b"),), {})
    replaced = Stored.read(file).without(["w1"]).with_more(again, large)
    assert [(one.workload, one.turn, one.commit) for one in replaced.rows] == [("gru", 0, "a"), ("w1", 0, "b")]
    assert (replaced.machines, replaced.agreement) == ({"gru": small, "w1": large}, {})
    added = Stored.read(file).with_more(again, small)
    assert [(one.workload, one.turn, one.commit) for one in added.rows][-1] == ("w1", 1, "b")
    assert added.agreement == first.agreement


BURN = (
    "import time; e = time.process_time() + 0.3; s = bytearray(30_000_000)\n"
    "while time.process_time() < e: pass\n"
    "time.sleep(1)"
)
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)"


def test_the_watch_sees_processes_that_left_the_tree_and_waits_for_them(tmp_path) -> None:
    environment = {**os.environ, "MARK": "only-this-run-4711"}
    usage = run_watched([sys.executable, "-c", PARENT], environment, "only-this-run-4711", tmp_path / "log.txt")
    assert usage.code == 0
    assert usage.cpu[-1] >= 0.28
    assert usage.pss > 30_000_000
    assert usage.cpu_between(usage.started - 10, time.time()) == pytest.approx(usage.cpu[-1] - usage.cpu[0])


GENERATION = """
import os, pathlib, subprocess, sys, time
number, parent = int(sys.argv[1]), int(sys.argv[2])
while number and os.getppid() == parent:
    time.sleep(0.01)
pathlib.Path(f"orphan-{number}").touch()
if number < 2:
    while not pathlib.Path(f"listed-{number + 1}").exists():
        time.sleep(0.01)
    subprocess.Popen([sys.executable, sys.argv[0], str(number + 1), str(os.getpid())], start_new_session=True)
else:
    time.sleep(0.5)
    pathlib.Path("done").touch()
"""


def test_the_watch_waits_for_processes_whose_parents_ended_while_it_listed_the_others(tmp_path, monkeypatch) -> None:
    """The command starts a process after a listing and is gone before it is read, and then that one does the same."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "generation.py"
    script.write_text(GENERATION)
    listing, numbers = Path.iterdir, itertools.count(1)

    def late(folder: Path) -> list[Path]:
        entries, number, until = list(listing(folder)), next(numbers), time.monotonic() + 60
        (tmp_path / f"listed-{number}").touch()
        while number <= 2 and not (tmp_path / f"orphan-{number}").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return entries

    monkeypatch.setattr(Path, "iterdir", late)
    environment = {**os.environ, "MARK": "only-this-run-4712"}
    command = [sys.executable, str(script), "0", "0"]
    usage = run_watched(command, environment, "only-this-run-4712", tmp_path / "log.txt")
    assert usage.code == 0
    assert (tmp_path / "done").exists()
