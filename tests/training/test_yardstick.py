"""Plain training beside a method: from the same start, without touching it; and where a method has one inside."""

import copy

import pytest
import torch

from holdfast.methods import build_method
from holdfast.training import Run, Training, fit, train_plain
from holdfast.training.yardstick import plain_run
from tests.training.toy import toy_model, toy_splits

SETTINGS = Training(epochs=3, batch_size=20, learning_rate=0.05)


def finding(result):
    found = [one for one in result.health.findings if one.check == "plain training"]
    return found[0] if found else None


def test_it_trains_a_copy_and_gives_what_plain_training_gives():
    model, splits = toy_model(), toy_splits()
    before = copy.deepcopy(model.state_dict())
    report = train_plain(model, splits, SETTINGS)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert report.to_json() == fit(model, splits, None, SETTINGS).test.to_json()


def test_a_method_is_judged_against_it_and_the_run_keeps_it(tmp_path):
    model, splits, run = toy_model(), toy_splits(), Run.create(tmp_path / "run", {})
    plain = train_plain(model, splits, SETTINGS)
    result = fit(model, splits, build_method("group-balanced"), SETTINGS, reference=plain, run=run)
    gain = result.test.worst_accuracy - plain.worst_accuracy
    assert finding(result).value == pytest.approx(gain)
    assert run.results["reference"]["worst_accuracy"] == plain.worst_accuracy


@pytest.mark.parametrize("method", ["dfr-train", "dfr-val"])
def test_a_method_that_finishes_a_plain_model_is_compared_with_that_one(method):
    splits = toy_splits()
    result = fit(toy_model(), splits, build_method(method), SETTINGS)
    plain = fit(toy_model(), splits, None, SETTINGS).test
    assert result.reference.to_json() == plain.to_json()
    assert finding(result).value == pytest.approx(result.test.worst_accuracy - plain.worst_accuracy)


@pytest.mark.parametrize("method", ["erm", "group-balanced", "group-balanced+dfr-train"])
def test_where_no_plain_model_is_inside_nothing_is_compared(method):
    settings = Training(epochs=6, batch_size=20, learning_rate=0.05)
    result = fit(toy_model(), toy_splits(), build_method(method), settings)
    assert result.reference is None
    assert finding(result) is None


def test_the_plain_run_of_a_folder_is_made_once(tmp_path):
    made = plain_run(tmp_path, lambda: {"method": "erm"})
    assert made.config == {"method": "erm"}
    assert plain_run(tmp_path, lambda: pytest.fail("made again")).path == made.path
