import pytest

from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.spare import Spare
from holdfast.spurious.group_inference.spare_epoch import choose_infer_epoch
from holdfast.training import Training, fit
from tests.training.toy import toy_model, toy_splits

SETTINGS = Training(epochs=2, batch_size=10, learning_rate=0.05)


def test_the_epoch_with_the_best_average_wins_and_the_earliest_of_equals():
    tuned = choose_infer_epoch(toy_model, toy_splits(), SETTINGS, candidates=(3, 1), spare=Spare(k=1))
    assert list(tuned.results) == [1, 3]
    averages = {epoch: result.validation.accuracy for epoch, result in tuned.results.items()}
    assert tuned.epoch == min(epoch for epoch in averages if averages[epoch] == max(averages.values()))


def test_each_candidate_is_the_training_that_it_names_chosen_by_accuracy():
    tuned = choose_infer_epoch(toy_model, toy_splits(), SETTINGS, candidates=(2,), spare=Spare(k=1))
    blind = Training(epochs=2, batch_size=10, learning_rate=0.05, select_by="accuracy")
    expected = fit(toy_model(), toy_splits(), Spare(k=1, infer_epoch=2), blind)
    assert tuned.results[2].history == expected.history


def test_nothing_to_try_is_refused():
    with pytest.raises(ConfigError, match="no inference epoch to try"):
        choose_infer_epoch(toy_model, toy_splits(), SETTINGS, candidates=())
