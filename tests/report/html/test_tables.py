from holdfast.report.html.markup import DASH
from holdfast.report.html.tables import confusion_table, facts_table, group_table, timing_table
from holdfast.report.pages.run_record import RunRecord
from holdfast.training import GroupReport
from tests.report.reading import read_page

REPORT = GroupReport.of_arrays(
    [0, 0, 0, 1, 1, 1, 0, 1],
    labels=[0, 0, 0, 0, 1, 1, 1, 1],
    groups=[0, 0, 0, 0, 1, 1, 2, 2],
    class_names=["cat", "dog"],
    group_names=["cats", "dogs", "odd dogs", "nobody"],
    train_counts=[40, 30, 2, 1],
)


def test_rows_are_worst_first_and_the_worst_is_marked():
    table = read_page(group_table(REPORT, "test"))
    rows = table.one("tbody").all("tr")
    assert [row.all("th")[0].attributes["data-value"] for row in rows] == ["odd dogs", "cats", "dogs", "nobody"]
    assert [row.attributes.get("class") for row in rows] == ["worst", None, None, None]


def test_a_row_has_counts_accuracy_interval_and_training_count():
    row = read_page(group_table(REPORT, "test")).one("tbody").all("tr")[1]
    assert [cell.text for cell in row.all("td")] == ["4", "3", "75.0%", "30.1% to 95.4%", "40"]


def test_a_group_without_examples_has_dashes_that_sort_last():
    row = read_page(group_table(REPORT, "test")).one("tbody").all("tr")[-1]
    assert [cell.text for cell in row.all("td")] == ["0", "0", DASH, DASH, "1"]
    assert [cell.attributes["data-value"] for cell in row.all("td")] == ["0", "0", "", "", "1"]


def test_every_header_is_a_button_and_says_how_it_is_sorted():
    heads = read_page(group_table(REPORT, "test")).one("thead").all("th")
    assert all(len(head.all("button")) == 1 and head.attributes["scope"] == "col" for head in heads)
    assert [head.text for head in heads if head.attributes["aria-sort"] == "ascending"] == ["Accuracy"]


def test_confusion_has_a_row_per_group_with_examples_and_frames_the_true_class():
    table = read_page(confusion_table(REPORT, [0, 1, None, None]))
    rows = table.one("tbody").all("tr")
    assert [[cell.text for cell in row.all("td")] for row in rows] == [
        ["75%3", "25%1"],
        ["0", "100%2"],
        ["50%1", "50%1"],
    ]
    framed = [[cell.attributes.get("class") or "" for cell in row.all("td")] for row in rows]
    assert [["right" in kinds for kinds in row] for row in framed] == [[True, False], [False, True], [False, False]]


def test_confusion_of_many_classes_has_titles_instead_of_text():
    report = GroupReport.of_arrays(list(range(30)), labels=list(range(30)))
    cells = read_page(confusion_table(report, list(range(30)))).all("td")
    assert len(cells) == 900
    assert {cell.text for cell in cells} == {""}
    assert cells[0].attributes["title"] == "y0 taken for y0: 1 of 1 (100.0%)"


def test_timing_names_every_activity_and_the_speed(finished):
    table = read_page(timing_table(RunRecord.of(finished)))
    assert [row.all("th")[0].text for row in table.all("tr")] == [
        "train",
        "policy",
        "evaluate",
        "checkpoint",
        "together",
    ]
    assert "training examples a second" in table.text


def test_facts_join_lists_and_dash_what_is_missing():
    cells = read_page(facts_table({"command": ["a", "b"], "commit": None})).all("td")
    assert [cell.text for cell in cells] == ["a b", DASH]
