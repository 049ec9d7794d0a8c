"""Weights & Biases in its offline mode; what it wrote is read back record by record and compared with the run."""

import json
import struct
import time

import pytest

from holdfast.integrations.trackers.tracker import trackers
from holdfast.integrations.trackers.wandb import WeightsAndBiases
from holdfast.training.events import Event
from holdfast.training.run import Run
from tests.integrations.tracked import CONFIG, run_fit

wandb = pytest.importorskip("wandb")

_BLOCK, _HEADER = 1 << 15, 7


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)


def records(data):
    """The records of an offline file: LevelDB's log format, a block of 32 KB at a time, behind seven bytes."""
    at, parts = _HEADER, []
    assert data[:4] == b":W&B"
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + _HEADER])
        parts.append(data[at + _HEADER : at + _HEADER + length])
        at += _HEADER + length
        if kind in (1, 4):  # whole, or the last of several
            yield b"".join(parts)
            parts = []


def whole(file):
    """The records of a finished run; its writer is a process of its own, which is done a moment later."""
    from wandb.proto.wandb_internal_pb2 import Record

    for _ in range(100):
        found = [Record.FromString(data) for data in records(file.read_bytes())]
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


def read(folder):
    """What arrived: the run's name and configuration, and each logged number by name and step; several files follow."""
    name, config, values, axes = None, {}, {}, set()
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):  # the folder's name has the second it was begun in
        for record in whole(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name = (record.run.project, record.run.run_id, record.run.display_name)
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                row = {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                for key, value in row.items():
                    values.setdefault(key, {})[row["step"]] = value
            elif kind == "metric":
                axes.add((record.metric.glob_name, record.metric.step_metric))
            else:  # nothing of the machine, its load, its packages, its repository or what is printed
                assert kind in {"header", "telemetry", "summary", "exit", "final", "footer"}, kind
    return name, config, values, axes


def test_the_offline_files_have_what_the_run_says(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    result = run_fit(run, trackers(["wandb"], run))
    (project, _, name), config, arrived, axes = read(run.path)
    assert (project, name) == ("holdfast", "run") and ("*", "step") in axes
    assert {key: config[key] for key in CONFIG} == CONFIG
    first, second = result.history
    assert arrived["plan/active"] == {0: 16.0, 2: 32.0}
    assert arrived["train/loss"] == pytest.approx({2: first["loss"], 6: second["loss"]})
    assert arrived["validation/score"] == pytest.approx({2: first["score"], 6: second["score"]})
    for place, group in enumerate(["y0_a0", "y0_a1", "y1_a0", "y1_a1"]):
        shown = [epoch["validation"]["groups"][place]["accuracy"] for epoch in result.history]
        assert list(arrived[f"validation/group/{group}"].values()) == pytest.approx(shown)
    assert arrived["test/worst_group"] == pytest.approx({6: result.test.worst_accuracy})
    assert not list(run.path.glob("wandb/offline-run-*/files/*")), "files to be sent: packages, printed lines, code"


def test_a_run_that_continues_goes_on_under_its_name_and_may_go_back_to_its_checkpoint(tmp_path):
    for steps in ((0, 5, 10), (5, 10)):
        listener = WeightsAndBiases(tmp_path, CONFIG)
        for step in steps:
            listener(Event("plan", 0, step, {"active": step + len(steps), "of": 50}))
        listener(Event("end", 0, 10, {}))
        time.sleep(1)
    runs = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len({file.name for file in runs}) == 1
    assert read(tmp_path)[2]["plan/active"] == {0: 3.0, 5: 7.0, 10: 12.0}
