"""Which epoch is kept when the score says nothing."""

import math

import torch

from holdfast.training import Training, fit
from holdfast.training.best_epoch import BestEpoch
from holdfast.training.evaluation.group_report import GroupReport
from tests.training.toy import toy_model, toy_splits


def _kept(scores: list[tuple[float, float]]) -> int:
    best = BestEpoch()
    for epoch, (score, accuracy) in enumerate(scores):
        best.offer(score, epoch, float(epoch), torch.nn.Linear(1, 1), accuracy=accuracy)
    return best.epoch


def test_accuracy_decides_between_equal_scores_only():
    assert _kept([(0.0, 0.3), (0.0, 0.9), (0.0, 0.8)]) == 1
    assert _kept([(0.0, 0.9), (0.1, 0.2), (0.1, 0.2)]) == 1


def test_the_first_of_equals_is_kept_where_accuracy_has_no_say():
    assert _kept([(0.5, math.inf), (0.5, math.inf), (0.2, math.inf)]) == 0


def test_a_checkpoint_from_before_accuracies_keeps_the_first_of_equals():
    best = BestEpoch(score=0.0, accuracy=0.4, epoch=1)
    old = {name: value for name, value in best.state_dict().items() if name != "accuracy"}
    resumed = BestEpoch.of_state(old)
    resumed.offer(0.0, 2, 2.0, torch.nn.Linear(1, 1), accuracy=0.9)
    assert resumed.epoch == 1
    again = BestEpoch.of_state(best.state_dict())
    again.offer(0.0, 2, 2.0, torch.nn.Linear(1, 1), accuracy=0.9)
    assert again.epoch == 2


def test_fit_does_not_keep_an_untrained_epoch_because_one_group_stays_at_zero(monkeypatch):
    monkeypatch.setattr(GroupReport, "worst_accuracy", 0.0)

    def kept(ties: str) -> tuple[int, list[float]]:
        settings = Training(epochs=4, learning_rate=0.05, ties=ties)
        result = fit(toy_model(), toy_splits(), None, settings)
        return result.best_epoch, [one["validation"]["correct"] for one in result.history]

    epoch, right = kept("accuracy")
    assert right[epoch] == max(right) > right[0]
    assert kept("first")[0] == 0
