"""What `fit` says of a method's health: in events, in its result, in results.json; and the same after a kill."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.training import Event, Plan, Policy, Run, Training, fit
from holdfast.training.health.check import Check, Health
from tests.training.toy import toy_model, toy_splits

LEFT = Check("examples left", 50, 35, "below", "toys have 60", "keep more")
SETTINGS = Training(epochs=4, batch_size=20, learning_rate=0.05)


@dataclass(frozen=True)
class Shrinks(Policy):
    """Drops ten more every epoch, and says that it should not."""

    name: ClassVar[str] = "shrinks"

    def due(self, clock):
        return clock.starts_epoch

    def update(self, context):
        return Plan(copies=torch.arange(len(context.examples)) >= 10 * context.clock.epoch)

    def health(self, observed):
        left = int(observed.plan.active.sum()) if observed.plan.active is not None else len(observed.examples)
        return [LEFT.finding(left, f"{left} are left")]


def test_each_change_of_verdict_is_an_event_once_and_the_end_has_all(tmp_path):
    events = list[Event]()
    run = Run.create(tmp_path / "run", {})
    result = fit(toy_model(), toy_splits(), Shrinks(), SETTINGS, run=run, listeners=[events.append])
    said = [(event.epoch, event.values["verdict"]) for event in events if event.kind == "health"]
    assert said == [(2, "doubtful"), (3, "failed")]
    stored = Run.open(run.path).results["health"]
    assert stored == result.health.to_json()
    assert stored["verdict"] == "failed"
    assert stored["findings"][0]["sentence"] == "30 are left"
    assert {"chance", "majority class"} <= {finding["check"] for finding in stored["findings"]}


def test_a_continued_run_says_what_is_new_and_ends_with_the_same_health(tmp_path):
    whole = fit(toy_model(), toy_splits(), Shrinks(), SETTINGS)
    run, events = Run.create(tmp_path / "run", {}), list[Event]()

    def stop(event):
        if event.kind == "epoch" and event.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(toy_model(), toy_splits(), Shrinks(), SETTINGS, run=run, listeners=[stop])
    resumed = fit(toy_model(), toy_splits(), Shrinks(), SETTINGS, run=run, listeners=[events.append])
    assert [event.values["verdict"] for event in events if event.kind == "health"] == []
    assert [event["verdict"] for event in run.metrics() if event["event"] == "health"] == ["doubtful", "failed"]
    assert resumed.health == whole.health


def test_plain_training_is_compared_with_a_reference_before_any_work():
    splits = toy_splits()
    plain = fit(toy_model(), splits, None, SETTINGS)
    again = fit(toy_model(), splits, None, SETTINGS, reference=plain.test)
    (finding,) = [finding for finding in again.health.findings if finding.check == "plain training"]
    assert (finding.verdict, finding.value) == ("ok", 0.0)
    started = list[Event]()
    with pytest.raises(ConfigError, match="same data"):
        fit(
            toy_model(),
            splits,
            None,
            SETTINGS,
            reference=plain.validation.__class__.of(splits.train.labels, splits.train),
            listeners=[started.append],
        )
    assert not started


def test_without_checks_nothing_speaks_against_a_result():
    assert Health().verdict == "ok"
