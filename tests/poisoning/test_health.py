import pytest
import torch

from holdfast.methods import build_method
from holdfast.poisoning import Epic
from holdfast.poisoning.health import concentration, dropped_share
from holdfast.training import Training, fit
from tests.training.toy import toy_model, toy_splits


def test_drops_that_fall_on_one_group_are_said():
    # The folder: 19 of 24 of a minority dropped, 18 of 558 others.
    labels, attributes = torch.zeros(582, dtype=torch.int64), (torch.arange(582) < 24).long()
    dropped = torch.zeros(582, dtype=torch.bool)
    dropped[:19] = dropped[24:42] = True
    finding = concentration(dropped, labels, attributes)
    assert finding.verdict == "doubtful"
    assert "79 % of class 0 with attribute 1 were dropped (19 of 24)" in finding.sentence
    even = torch.arange(582) % 10 == 0
    assert concentration(even, labels, attributes).verdict == "ok"


def test_a_defence_that_drops_most_examples_has_failed():
    assert dropped_share("epic", torch.arange(100) < 60).verdict == "failed"
    assert dropped_share("epic", torch.arange(100) < 40).verdict == "doubtful"
    assert dropped_share("epic", torch.arange(100) < 10).verdict == "ok"


def test_a_fraction_above_a_half_is_honoured_and_what_it_does_is_said():
    policy = Epic(fraction=0.9, start=1, every=1, stop=2, largest=2)
    result = fit(toy_model(), toy_splits(), policy, Training(epochs=3, batch_size=20))
    dropped = sum(len(drop.ids) for drop in policy.drops)
    assert dropped > 30
    assert result.health.verdict == "failed"
    assert f"epic dropped {dropped} of 60 examples" in result.health.headline


@pytest.mark.parametrize(
    ("defence", "options"),
    [
        ("activation-clustering", {"filter_epochs": 1}),
        ("deep-knn", {"filter_epochs": 1, "expected": 0.2}),
        ("highest-loss", {"start": 1, "every": 1, "threshold": 0.6}),
        ("lowest-confidence", {"start": 1, "every": 1, "threshold": 0.6}),
    ],
)
def test_every_defence_that_drops_says_how_much_and_whom(defence, options):
    policy = build_method(defence, {defence: options})
    result = fit(toy_model(), toy_splits(), policy, Training(epochs=3, batch_size=20))
    said = {finding.check: finding.sentence for finding in result.health.findings}
    assert said["share that was dropped"].startswith(f"{defence} dropped ")
    assert "were dropped" in said["drops in one group"]
