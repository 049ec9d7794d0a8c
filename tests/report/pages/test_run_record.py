import json
import shutil

import pytest

from holdfast.report.pages.run_record import RunRecord
from holdfast.training import Run
from tests.report.toy import SETTINGS, StoppedError, stop_after, toy_run


def test_a_finished_run_is_judged_on_the_test_set(finished):
    record = RunRecord.of(finished)
    assert (record.status, record.part) == ("finished", "test")
    assert (record.data, record.method, record.model, record.seed) == ("toy", "erm", "linear", 0)
    assert record.report is not None
    assert record.report.count == 80
    assert len(record.epochs) == record.epochs_planned == SETTINGS.epochs
    assert record.full_epochs == pytest.approx(SETTINGS.epochs)


def test_an_interrupted_run_is_judged_on_the_validation_set_at_its_best_epoch(tmp_path):
    with pytest.raises(StoppedError):
        toy_run(tmp_path / "run", listeners=[stop_after(3)])
    run = Run.open(tmp_path / "run")
    record = RunRecord.of(run)
    assert (record.status, record.part) == ("interrupted", "validation")
    scores = [event["score"] for event in run.metrics() if event["event"] == "epoch"]
    assert record.best_epoch == scores.index(max(scores))
    assert record.report is not None
    assert record.report.worst_accuracy == max(scores)


def test_events_before_the_last_start_are_forgotten(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    file.write_text(file.read_text() * 2)
    assert len(RunRecord.of(Run.open(tmp_path / "run")).epochs) == SETTINGS.epochs


def test_a_step_is_placed_between_the_epochs_around_it(finished):
    record = RunRecord.of(finished)
    first, second = (event["step"] for event in record.epochs[:2])
    assert record.when(0) == 0
    assert record.when(second) == 2
    assert record.when((first + second) // 2) == pytest.approx(1.5, abs=0.1)


def test_a_restart_is_where_the_stage_changes(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    file = tmp_path / "run" / "metrics.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        if event["event"] == "epoch" and event["epoch"] >= 2:
            event["stage"] = 1
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert RunRecord.of(Run.open(tmp_path / "run")).restarts == [2]
    assert RunRecord.of(finished).restarts == []
