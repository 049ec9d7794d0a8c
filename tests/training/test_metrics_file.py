import os

import pytest

from holdfast.errors import CheckpointError
from holdfast.training.events import Event
from holdfast.training.metrics_file import MetricsFile, MetricsMark


@pytest.fixture
def metrics(tmp_path):
    return MetricsFile(tmp_path / "metrics.jsonl")


def log(metrics, *epochs):
    for epoch in epochs:
        metrics.append(Event("epoch", epoch, 10 * epoch, {"loss": 0.5}))


def test_events_come_back_and_steps_are_left_out(metrics):
    log(metrics, 0, 1)
    metrics.append(Event("step", 2, 21, {}))
    assert [event["epoch"] for event in metrics.events()] == [0, 1]


def test_a_run_that_goes_on_tells_what_came_after_the_checkpoint_once(metrics):
    log(metrics, 0)
    mark = metrics.mark()
    log(metrics, 1, 2)
    later = MetricsFile(metrics.path)
    later.cut(MetricsMark.of(mark.to_json()))
    log(later, 1)
    assert [event["epoch"] for event in later.events()] == [0, 1]
    assert later.mark() == MetricsFile(metrics.path).mark()  # counted on, and from the start


@pytest.mark.parametrize("damage", ["emptied", "cut", "changed"])
def test_a_file_that_the_checkpoint_did_not_see_is_refused_and_left_alone(metrics, damage):
    log(metrics, 0, 1)
    mark, content = metrics.mark(), metrics.path.read_bytes()
    other = {"emptied": b"", "cut": content[:-3], "changed": content.replace(b"0.5", b"0.6")}[damage]
    metrics.path.write_bytes(other)
    with pytest.raises(CheckpointError, match="is not what the checkpoint saw"):
        metrics.cut(mark)
    assert metrics.path.read_bytes() == other  # in particular, no zeros were appended


def test_an_older_checkpoint_knows_the_size_only_and_a_shorter_file_is_refused_all_the_same(metrics):
    log(metrics, 0)
    size = metrics.path.stat().st_size
    metrics.cut(MetricsMark.of(size))
    with pytest.raises(CheckpointError, match=f"has {size} bytes and had {size + 1}"):
        metrics.cut(MetricsMark.of(size + 1))


def test_a_file_that_was_deleted_costs_the_history_only(metrics, caplog):
    log(metrics, 0)
    mark = metrics.mark()
    metrics.path.unlink()
    metrics.cut(mark)
    assert "is missing" in caplog.text and not metrics.path.exists()


@pytest.mark.parametrize(
    "line", [b"\x00" * 20, b"[]", b'{"event": 1, "epoch": 0, "step": 0}', b'{"event": "epoch"}', b"\xff"]
)
def test_a_line_that_is_no_event_is_named(metrics, line):
    log(metrics, 0)
    with metrics.path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(CheckpointError, match="line 2 of"):
        metrics.events()


def test_a_half_written_last_line_is_left_out(metrics):
    log(metrics, 0)
    with metrics.path.open("ab") as file:
        file.write(b'{"event": "ep')
    assert len(metrics.events()) == 1


@pytest.mark.parametrize("saved", [-1, "x", None, {"size": 1.5}, {"size": 1, "sha256": 3}, {}])
def test_a_mark_that_makes_no_sense_is_a_sentence(saved):
    with pytest.raises(CheckpointError, match=r"of metrics\.jsonl"):
        MetricsMark.of(saved)


def test_a_link_is_not_written_through(metrics, tmp_path):
    (tmp_path / "precious").write_text("mine")
    metrics.path.symlink_to(tmp_path / "precious")
    with pytest.raises(CheckpointError, match="can't be written"):
        log(metrics, 0)
    with pytest.raises(CheckpointError):
        metrics.cut(MetricsMark(0))
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_full_disk_is_said_in_words(metrics, monkeypatch):
    monkeypatch.setattr(os, "open", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CheckpointError, match="No space left"):
        log(metrics, 0)
