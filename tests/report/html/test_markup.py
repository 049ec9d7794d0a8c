import pytest

from holdfast.errors import counted
from holdfast.report.html.markup import DASH, Html, duration, join, number, percent, tag


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "a < b & c", tag("b", "d")) == "<p>a &lt; b &amp; c<b>d</b></p>"


def test_attributes_are_escaped():
    assert tag("p", title="\"'><script>") == '<p title="&quot;&#x27;&gt;&lt;script&gt;"></p>'


def test_attributes_that_are_none_are_left_out_and_true_has_no_value():
    assert tag("td", class_=None, data_value=3, hidden=True) == '<td data-value="3" hidden></td>'


def test_joining_text_makes_it_safe_once():
    joined = join(["<", tag("i", ">"), None])
    assert isinstance(joined, Html)
    assert tag("p", joined) == "<p>&lt;<i>&gt;</i></p>"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0.00 s"),
        (9.126, "9.13 s"),
        (61.4, "61 s"),
        (121, "2 min 01 s"),
        (3599.6, "1 h 00 min"),
        (7320, "2 h 02 min"),
    ],
)
def test_durations_read_as_people_say_them(seconds, said):
    assert duration(seconds) == said


def test_missing_numbers_are_a_dash():
    assert percent(None) == number(None) == DASH
    assert (percent(0.1234), number(12345)) == ("12.3%", "12,345")


def test_one_thing_is_in_the_singular():
    assert [counted(count, "change") for count in (0, 1, 1200)] == ["0 changes", "1 change", "1,200 changes"]
