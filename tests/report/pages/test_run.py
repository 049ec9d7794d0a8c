import base64
import hashlib
import re
import shutil
from dataclasses import replace

import pytest
import torch

from holdfast.data import Examples, Splits
from holdfast.errors import DataError
from holdfast.report import write_report
from holdfast.spurious import GroupBalanced
from holdfast.training import Event, Run, Training
from holdfast.training.health.check import Check
from tests.report.reading import read_page
from tests.report.toy import BREAKOUT, SCRIPT, SETTINGS, StoppedError, stop_after, toy_run


def written(run, splits=None):
    return read_page(write_report(run, splits).read_text())


def test_the_sections_come_in_the_order_of_the_questions(shrinking, splits):
    sections = [section.attributes["id"] for section in written(shrinking, splits).all("section")]
    assert sections == ["groups", "time", "confusion", "examples", "trained", "facts"]


def test_the_headline_has_the_worst_group_with_its_interval(page, finished):
    test = finished.results["test"]
    (worst,) = [group for group in test["groups"] if group["name"] == test["worst"]]
    said = page.one("header").one("p", class_="who").text
    assert said.startswith(worst["name"])
    assert f"{worst['correct']} of {worst['count']} right" in said
    assert f"95% interval {worst['low']:.1%} to {worst['high']:.1%}" in said
    assert page.one("header").one("p", class_="number").text == f"{worst['accuracy']:.1%}"


def test_the_headline_has_each_average_under_the_name_of_its_weighting(page, finished):
    cards = {card.all("dt")[0].text: card.all("dd")[0].text for card in page.one("dl").all("div")}
    results = finished.results
    averages = results["test"]["averages"]
    assert cards == {
        "Average, test mix": f"{averages['test mix']:.1%}",
        "Average, training mix": f"{averages['train mix']:.1%}",
        "Group mean": f"{averages['group mean']:.1%}",
        "Chosen epoch": f"{results['best_epoch'] + 1} of {SETTINGS.epochs}",
        "Full-epoch equivalents": f"{results['best_full_epochs']:.2f} of {results['full_epochs']:.2f}",
    }


def test_the_headline_names_data_method_model_and_status(page):
    header = page.one("header")
    assert header.one("h1").text == "toy"
    assert header.one("p", class_="byline").text == "erm, with linear, seed 0"
    assert header.one("span", class_="status").text == "finished"


def test_the_table_agrees_with_the_results(page, finished):
    rows = {
        row.all("th")[0].attributes["data-value"]: [cell.text for cell in row.all("td")]
        for row in page.one("table", class_="groups").one("tbody").all("tr")
    }
    assert rows == {
        group["name"]: [
            str(group["count"]),
            str(group["correct"]),
            f"{group['accuracy']:.1%}",
            f"{group['low']:.1%} to {group['high']:.1%}",
            str(group["train_count"]),
        ]
        for group in finished.results["test"]["groups"]
    }


def test_names_from_the_data_are_text_and_never_markup(page, finished):
    text = (finished.path / "report.html").read_text()
    assert SCRIPT in page.text
    assert BREAKOUT in page.text
    assert SCRIPT not in text
    assert "<img src=x" not in text
    assert len(page.all("script")) == 1
    assert not [element for element in page.all("*") if any(name.startswith("on") for name in element.attributes)]
    assert "a < b & c" in page.all("details")[-1].text


def test_nothing_is_loaded_from_anywhere(page, finished):
    places = [
        value
        for element in page.all("*")
        for name, value in element.attributes.items()
        if name in ("src", "href", "action", "data", "poster", "srcset") and value
    ]
    assert places
    assert all(place.startswith("data:") for place in places)
    style = page.one("style").text
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_exactly_the_script_that_is_there(page, finished):
    script = re.search("<script>(.*)</script>", (finished.path / "report.html").read_text(), re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "default-src 'none'" in policy.attributes["content"]
    assert f"script-src 'sha256-{digest}'" in policy.attributes["content"]


def test_images_of_the_worst_group_have_alternative_texts(page):
    images = page.one("section", id="examples").all("img")
    assert 1 <= len(images) <= 24
    assert all(image.attributes["src"].startswith("data:image/png;base64,") for image in images)
    assert all(image.attributes["alt"] and image.attributes["class"] == "tiny" for image in images)


def test_without_the_data_the_page_says_how_to_get_the_images(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    examples = written(Run.open(tmp_path / "run")).one("section", id="examples")
    assert not examples.all("img")
    assert "can't be shown" in examples.text
    assert f"holdfast report {tmp_path / 'run'} --data-root DIR" in examples.text


def test_other_data_than_the_run_had_is_refused_and_the_page_left_alone(finished, splits, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    (run.path / "report.html").write_text("before")
    strange = replace(splits, test=replace(splits.test, ids=splits.test.ids + 7))
    with pytest.raises(DataError, match="isn't the one that was predicted"):
        write_report(run, strange)
    assert (run.path / "report.html").read_text() == "before"


def test_an_interrupted_run_says_so_and_shows_validation_scores(splits, tmp_path):
    with pytest.raises(StoppedError):
        toy_run(tmp_path / "run", listeners=[stop_after(3)])
    page = written(Run.open(tmp_path / "run"), splits)
    assert page.one("span", class_="status").text == "interrupted"
    banner = page.one("p", class_="banner").text
    assert f"3 of {SETTINGS.epochs} epochs done" in banner
    assert f"holdfast fit --resume {tmp_path / 'run'}" in banner
    assert page.one("p", class_="what").text == "Worst-group validation accuracy"
    assert "Average, validation mix" in page.one("dl").text
    assert "best so far" in page.one("section", id="time").text
    assert "The frame marks the true class" in page.one("section", id="confusion").text


def test_a_run_that_holds_its_lock_is_still_going_on(splits, tmp_path):
    seen = []
    toy_run(tmp_path / "run", listeners=[lambda event: seen.append(written(Run.open(tmp_path / "run"), splits))])
    assert {page.one("span", class_="status").text for page in seen} == {"running"}
    assert "there are no numbers yet" in seen[0].one("p", class_="banner").text


def test_a_run_of_which_nothing_happened_yet_has_a_page(tmp_path):
    page = written(Run.create(tmp_path / "run", {}))
    assert "0 epochs done, and there are no numbers yet" in page.one("p", class_="banner").text
    assert page.one("h1").text == "unnamed data"


def test_what_was_trained_on_is_left_out_where_nothing_changed_it(page):
    assert not page.all("section", id="trained")


def test_what_was_trained_on_is_drawn_where_the_plan_changed(shrinking):
    trained = written(shrinking).one("section", id="trained")
    assert "3 changes of plan after the start" in trained.text
    rows = trained.one("tbody").all("tr")
    assert [row.all("td")[2].text for row in rows] == ["120", "110", "100", "90"]


def test_a_plan_that_never_changes_is_said_in_a_sentence(tmp_path):
    trained = written(toy_run(tmp_path / "run", GroupBalanced())).one("section", id="trained")
    assert "120 of 120 examples took part from the start on, drawn by sampling weight." in trained.text
    assert not trained.all("figure")


def test_the_run_can_be_repeated_from_what_the_page_says(page, finished):
    facts = page.one("section", id="facts").text
    assert f"holdfast fit --config {finished.path / 'config.yaml'} --out {finished.path}-again" in facts
    assert "method: erm" in facts
    assert torch.__version__ in facts


def test_without_groups_the_classes_stand_in(splits, tmp_path):
    def bare(examples: Examples) -> Examples:
        return Examples.of(examples.inputs, examples.labels, ids=examples.ids, class_names=examples.class_names)

    plain = Splits("plain", bare(splits.train), bare(splits.validation), bare(splits.test))
    page = written(toy_run(tmp_path / "run", splits=plain, settings=Training(epochs=1)), plain)
    assert page.one("p", class_="what").text == "Worst-class test accuracy"
    assert "classes stand in" in page.one("section", id="groups").text
    assert page.one("section", id="examples").all("img")


def test_overlapping_groups_have_a_page(splits, tmp_path):
    def overlapping(examples: Examples) -> Examples:
        member = torch.stack([torch.ones(len(examples), dtype=torch.bool), examples.attributes == 1], 1)
        return replace(examples, memberships=member, group_names=("anyone", "red"))

    both = Splits("both", *map(overlapping, (splits.train, splits.validation, splits.test)))
    page = written(toy_run(tmp_path / "run", splits=both, settings=Training(epochs=1)), both)
    assert "Average, training mix" not in page.one("dl").text
    assert not page.one("section", id="confusion").all("td", class_="right")
    assert page.one("section", id="examples").all("img")


def test_the_first_thing_on_the_page_is_whether_to_use_it(finished, splits, tmp_path):
    run = Run.open(shutil.copytree(finished.path, tmp_path / "run"))
    results = run.results
    finding = results["health"]["findings"][0]
    results["health"]["findings"] = [finding | {"verdict": "failed", "sentence": "it is below guessing"}]
    run.save_results(results)
    text = write_report(run, splits).read_text()
    said = text.index("This result should not be used")
    assert said < text.index("it is below guessing") < text.index('class="hero"')
    assert text.count("it is below guessing") == 1


def test_a_run_of_an_older_version_without_health_has_its_page(finished, splits, tmp_path):
    run = Run.open(shutil.copytree(finished.path, tmp_path / "run"))
    results = run.results
    del results["health"]
    run.save_results(results)
    assert "This result" not in write_report(run, splits).read_text()


def test_what_was_found_so_far_is_on_the_page_of_an_unfinished_run(splits, tmp_path):
    run = Run.create(tmp_path / "run", {})
    run.log(Event("start", 0, 0, {"epochs": 3, "examples": 10}))
    finding = Check("skill", 0.6, 0.4, "below", "why", "train longer").finding
    for value in (0.1, 0.5):
        run.log(Event("health", 1, 5, finding(value, f"skill is {value}").to_json()))
    text = write_report(run, splits).read_text()
    assert text.index("This result is doubtful") < text.index("skill is 0.5") and "skill is 0.1" not in text
