"""A run directory that was damaged, moved, left half written, or is another process's."""

import json
import os
import shutil

import pytest

from holdfast.errors import CheckpointError, ConfigError
from holdfast.training import Run, Training, fit
from holdfast.training.fitting import _Fit
from tests.training.test_resume import POLICIES, StopHere, fingerprint, stop_after
from tests.training.toy import toy_model, toy_splits

SETTINGS = Training(epochs=2, batch_size=7, learning_rate=0.05, seed=3, checkpoint_seconds=0)


def train(run=None, listeners=(), settings=SETTINGS):
    model = toy_model()
    fit(model, toy_splits(), None, settings, run=run, listeners=listeners)
    return fingerprint(model)


@pytest.fixture
def stopped(tmp_path):
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(StopHere):
        train(run, [stop_after(12)])
    return run


def sizes_by_epoch(policy, folder, monkeypatch):
    sizes, save = [], _Fit._save

    def counted(loop):
        save(loop)
        sizes.append((loop.run.path / "checkpoints" / "last.safetensors").stat().st_size)

    monkeypatch.setattr(_Fit, "_save", counted)
    settings = Training(epochs=14, batch_size=20, learning_rate=0.01, seed=3, checkpoint_seconds=1e9)
    fit(toy_model(), toy_splits(), policy, settings, run=Run.create(folder / "run", {}))
    return sizes


@pytest.mark.parametrize(
    "policy", ["uniform", "spare", "jtt", "group-dro", "forgetting", "two-stages >> drop >> weights"]
)
def test_a_checkpoint_does_not_grow_with_the_epochs(policy, tmp_path, monkeypatch):
    sizes = sizes_by_epoch(POLICIES[policy](), tmp_path, monkeypatch)
    assert len(sizes) >= 14
    # A number may have a digit more than before; a record of the epoch would be hundreds of bytes.
    assert sizes[-1] - sizes[-7] <= 8 * 6, sizes


@pytest.mark.parametrize(("policy", "bytes_per_record"), [("crest, every batch", 200), ("pde", 200)])
def test_a_method_that_keeps_accounts_adds_a_record_of_each_choice_and_no_more(
    policy, bytes_per_record, tmp_path, monkeypatch
):
    sizes, run = sizes_by_epoch(POLICIES[policy](), tmp_path, monkeypatch), Run.open(tmp_path / "run")
    choices = sum(event["event"] == "plan" for event in run.metrics())
    assert sizes[-1] - sizes[0] <= bytes_per_record * choices


def test_what_a_killed_process_left_half_written_is_removed_by_the_next_one(stopped):
    for name in (".results.json.4194304.part", "checkpoints/.last.safetensors.4194304.part"):
        (stopped.path / name).write_bytes(b"half")
    (stopped.path / f".report.html.{os.getppid()}.part").write_bytes(b"being written by a process that lives")
    train(Run.open(stopped.path))
    left = sorted(part.name for part in stopped.path.rglob(".*.part"))
    assert left == [f".report.html.{os.getppid()}.part"]


def test_a_run_that_was_moved_goes_on_where_it_is_now(stopped, tmp_path):
    shutil.copytree(stopped.path, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(stopped.path)
    assert train(Run.open(tmp_path / "elsewhere" / "copy")) == train()


def test_two_processes_do_not_continue_one_run(stopped):
    other = Run.open(stopped.path)
    other.lock()
    with pytest.raises(ConfigError, match="another process is writing"):
        train(Run.open(stopped.path))
    other.unlock()
    assert train(Run.open(stopped.path)) == train()


def test_a_lock_that_is_a_link_is_not_followed(stopped, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (stopped.path / ".lock").unlink()
    (stopped.path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError, match="can't be written to"):
        stopped.lock()
    assert (tmp_path / "precious").read_text() == "mine"


def test_history_comes_back_from_the_events(stopped, tmp_path):
    whole = fit(toy_model(), toy_splits(), None, SETTINGS).history
    resumed = fit(toy_model(), toy_splits(), None, SETTINGS, run=Run.open(stopped.path)).history
    assert json.dumps(resumed) == json.dumps(whole)


def test_a_changed_history_is_refused(stopped):
    file = stopped.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"score"', b'"scare"'))
    with pytest.raises(CheckpointError, match="not what the checkpoint saw"):
        train(Run.open(stopped.path))


def test_the_wall_clock_may_jump(stopped, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert train(Run.open(stopped.path)) == train()


@pytest.mark.parametrize("entry", ["model", "optimizer", "curator", "best", "losses", "metrics", "generator"])
@pytest.mark.parametrize("value", [None, -1, {}, [], "x"])
def test_a_checkpoint_that_lies_is_a_sentence(stopped, entry, value):
    state = stopped.load_checkpoint()
    stopped.save_checkpoint({**state, entry: value})
    with pytest.raises((CheckpointError, ConfigError)):
        train(Run.open(stopped.path))


def test_a_kind_that_there_is_not_is_a_sentence(stopped):
    (stopped.path / "environment.json").write_text('{"kind": "cake"}')
    with pytest.raises(CheckpointError, match="there is no such kind"):
        assert stopped.kind
