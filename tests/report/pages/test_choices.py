import pytest

from holdfast.coresets import Craig, Crest
from holdfast.coresets.accounting import Accounts
from holdfast.report import write_report
from holdfast.report.pages.choices import error_figure
from holdfast.training import Run, Training, fit
from tests.coresets.toy import net, toy_splits


def page_of(policy, folder):
    run = Run.create(folder, {})
    splits = toy_splits()
    settings = Training(epochs=3, epoch_size=160, learning_rate=0.1, select_by="accuracy")
    fit(net(), splits, policy, settings, run=run)
    return write_report(run, splits).read_text()


def test_a_page_tells_what_choosing_took(tmp_path):
    policy = Crest(algorithm="published", batch_size=16, subset=60)
    page = page_of(policy, tmp_path / "run")
    assert "What was chosen" in page
    assert "crest chose" in page
    assert "modelling the loss" in page
    assert "Error of the model of the loss over" in page


def test_a_method_without_checks_has_no_figure(tmp_path):
    page = page_of(Craig(fraction=0.5), tmp_path / "run")
    assert "craig chose" in page
    assert "Error of the model" not in page


def test_a_run_without_choices_has_no_section(tmp_path):
    assert "What was chosen" not in page_of(None, tmp_path / "run")


@pytest.mark.parametrize(("choices", "said"), [(3, "Dotted marks are"), (100, "It falls to zero")])
def test_many_choices_are_not_marked_one_by_one(choices, said):
    accounts = Accounts(
        [{"step": step} for step in range(choices)], [{"step": step, "error": 0.01 * step} for step in range(1, 120)]
    )
    figure = error_figure(accounts)
    assert said in figure
    assert figure.count('class="mark') == (choices if choices < 60 else 0)
