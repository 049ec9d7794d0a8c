from holdfast.report.html.health import health_banner
from holdfast.training.health.check import Check, Health
from tests.report.toy import SCRIPT

CHECK = Check("skill", 0.6, 0.4, "below", "it must have learned", "train longer")


def test_a_failed_result_is_said_first_with_its_remedy_and_names_are_text():
    shown = health_banner(Health.of([CHECK.finding(0.1, f"class {SCRIPT} was not learned")]))
    assert "<b>This result should not be used:</b>" in shown
    assert "<b>Train longer</b>" in shown
    assert SCRIPT not in shown


def test_each_reason_is_said_once_before_the_checks_are_unfolded():
    found = [CHECK.finding(0.1, "it did not learn"), CHECK.finding(0.5, "it hardly learned")]
    said = health_banner(Health.of(found)).partition("<details")[0]
    assert said.lower().count("it did not learn") == said.lower().count("it hardly learned") == 1


def test_a_good_result_is_a_note_and_no_banner():
    shown = health_banner(Health.of([CHECK.finding(0.9, "it learned")]))
    assert "No problem found" in shown
    assert "banner" not in shown


def test_what_was_not_looked_at_is_not_spoken_of():
    assert health_banner(None) is None
    assert health_banner(Health()) is None
