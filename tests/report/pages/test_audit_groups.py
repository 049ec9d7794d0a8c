import builtins
import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast.data import Examples
from holdfast.errors import HoldfastWarning
from holdfast.report.html.charts import histogram
from holdfast.report.html.images import overlay
from holdfast.report.html.markup import DASH, times
from holdfast.report.pages.audit_groups import class_sentence, doubts, write_audit
from holdfast.spurious import separate
from holdfast.spurious.group_inference.discovery import Cluster, GroupAudit, describe_clusters
from holdfast.spurious.group_inference.quality import judge_groups
from tests.report.reading import read_page
from tests.report.toy import BREAKOUT, SCRIPT, toy_images


def audit_of(examples, probabilities, **options):
    partition = separate(probabilities, examples.labels, ids=examples.ids, **options)
    return GroupAudit(partition, describe_clusters(probabilities, partition), probabilities, 2)


def shortcut(examples, seed=0):
    """Softmax outputs of a model that takes the attribute for the class."""
    noise = 0.3 * torch.randn(len(examples), examples.n_classes, generator=torch.Generator().manual_seed(seed))
    return (5 * torch.eye(examples.n_classes)[examples.attributes] + noise).softmax(1)


def conv_model(classes=2):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, classes))


def write(path, audit, examples, **more):
    options = {"name": "toy", "about": "conv after 2 epochs", "facts": {"seed": 0, "command": "holdfast <audit>"}}
    return write_audit(path, audit, examples, **(options | more))


@pytest.fixture(scope="module")
def toy():
    examples = toy_images(240, 0, 1000)
    return examples, audit_of(examples, shortcut(examples))


@pytest.fixture(scope="module")
def file(toy, tmp_path_factory):
    examples, audit = toy
    commands = {"Train on": "holdfast fit --method spare"}
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    return write(path, audit, examples, commands=commands, model=conv_model())


@pytest.fixture(scope="module")
def page(file):
    return read_page(file.read_text())


def cluster(number=0, size=100, predicted=(0, 100, 0, 0), label=0, class_size=1000):
    return Cluster(label, number, size, class_size, predicted, (0,) * 20, 0.5, 0.5, 1.0, (), ())


# ------------------------------------------------------------------------------------------------------- in words

NAMES = ("ant", "bee", "cat", "dog")


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        (
            [cluster(0, 769, (769, 0, 0, 0)), cluster(1, 231, (4, 227, 0, 0))],
            "2 clusters. Cluster 1 (231 examples, 23.1%) is taken for bee in 98% of cases.",
        ),
        (
            [cluster(0, 900, (900, 0, 0, 0)), cluster(1, 90, (0, 90, 0, 0)), cluster(2, 10, (1, 0, 0, 9))],
            "3 clusters. Clusters 1 and 2 (100 examples, 10.0%) are taken for bee and dog, in at least 90% of cases.",
        ),
        (
            [
                cluster(0, 970, (970, 0, 0, 0)),
                *(cluster(j, 10, tuple(10 * np.eye(4, dtype=int)[j])) for j in (1, 2, 3)),
            ],
            "4 clusters. Clusters 1, 2 and 3 (30 examples, 3.0%) are taken for bee, cat and dog, in all cases.",
        ),
        (
            [cluster(0, 999, (999, 0, 0, 0)), cluster(1, 1, (0, 0, 1, 0))],
            "2 clusters. Cluster 1 (1 example, 0.1%) is taken for cat in 100% of cases.",
        ),
        (
            [cluster(0, 600, (600, 0, 0, 0)), cluster(1, 400, (300, 100, 0, 0))],
            "2 clusters; none is taken for one other class in most cases.",
        ),
        ([cluster(0, 1000, (1000, 0, 0, 0))], "One cluster of 1,000 examples, so there is nothing to compare."),
    ],
)
def test_a_class_is_summed_up_in_plain_words(clusters, expected):
    assert class_sentence(clusters, NAMES) == expected


def test_nearly_all_is_not_called_all():
    assert ">99% of cases" in class_sentence([cluster(0, 9, (9, 0, 0, 0)), cluster(1, 999, (1, 998, 0, 0))], NAMES)


def test_a_healthy_audit_has_no_doubts(toy):
    examples, audit = toy
    assert doubts(audit, examples.class_names) == []


def test_a_majority_split_in_two_is_doubted():
    examples = toy_images(200, 0, 0, names=("ant", "bee"))
    right = torch.linspace(0.5, 1, 200)
    probabilities = torch.where(examples.labels[:, None] == torch.arange(2), right[:, None], 1 - right[:, None])
    with pytest.warns(HoldfastWarning, match="split in two"):
        audit = audit_of(examples, probabilities)
    (said,) = doubts(audit, examples.class_names)
    assert re.search(r"The silhouette of ant \(0\.\d\d\), bee \(0\.\d\d\) is under 0\.7", said)


def test_other_doubts_are_told_class_by_class():
    """Class 0: one odd example of 1000. Class 1: constant outputs. Class 2: not learned at all."""
    labels = torch.arange(3).repeat_interleave(torch.tensor([1000, 10, 10]))
    probabilities = torch.eye(3)[labels]
    probabilities[0] = torch.tensor([0.0, 1.0, 0.0])
    probabilities[1010:1018], probabilities[1018:] = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.9, 0.1, 0.0])
    examples = Examples.of(torch.zeros(1020, 2), labels, class_names=NAMES[:3])
    with pytest.warns(HoldfastWarning, match="constant"):
        audit = audit_of(examples, probabilities)
    nearly, constant, unknown = doubts(audit, examples.class_names)
    assert nearly.startswith("One cluster holds nearly all of ant,")
    assert constant.startswith("The model gives the same output for all of bee,")
    assert unknown.startswith("The model gets most of cat wrong,")


# -------------------------------------------------------------------------------------------------------- the page


def test_the_sections_come_in_the_order_of_the_questions(page):
    sections = [section.attributes["id"] for section in page.all("section")]
    assert sections == ["glance", "clusters", "class-0", "class-1", "check", "facts"]


def test_the_headline_names_the_most_suspicious_cluster(page, toy):
    examples, audit = toy
    first = audit.suspects[0]
    header = page.one("header")
    target = first.mistaken_for
    names = examples.class_names
    assert header.one("p", class_="number").text == "100%"
    assert header.one("p", class_="who").text == (
        f"of {names[first.label]}, cluster {first.cluster} ({first.predicted[target]} of {first.size} examples) are "
        f"taken for {names[target]}."
    )
    assert [item.text for item in header.one("ul").all("li")] == [
        f"Class {names[label]}: {class_sentence(audit.of_class(label), names)}" for label in (0, 1)
    ]


def test_the_table_agrees_with_the_clusters_and_the_csv_of_them(page, toy):
    examples, audit = toy
    rows = {
        row.all("th")[0].attributes["data-value"]: [cell.text for cell in row.all("td")]
        for row in page.one("table", class_="clusters").one("tbody").all("tr")
    }
    names = examples.class_names
    assert rows == {
        f"{names[one.label]}, cluster {one.cluster}": [
            str(one.size),
            f"{one.share:.1%}",
            f"{audit.partition.classes[one.label].silhouette.value:.2f}",
            f"{one.accuracy:.1%}",
            DASH if one.mistaken_for is None else names[one.mistaken_for],
            DASH if one.mistaken_for is None else f"{one.mistaken:.1%}",
            times(one.weight),
        ]
        for one in audit.clusters
    }
    flagged = page.one("table", class_="clusters").all("tr", class_="worst")
    assert [row.one("th").attributes["data-value"] for row in flagged] == [
        f"{names[one.label]}, cluster {one.cluster}" for one in audit.suspects
    ]


def test_a_suspect_stands_beside_its_target_and_the_rest_of_its_class(page, toy):
    examples, audit = toy
    first = audit.suspects[0]
    columns = page.all("div", class_="glance")[0].children
    shown = [[re.search(r"example (\d+)", img.attributes["alt"])[1] for img in column.all("img")] for column in columns]
    expected = [first, audit.of_class(first.mistaken_for)[0], audit.of_class(first.label)[0]]
    ids = [[str(int(examples.ids[place])) for place in one.typical[:4]] for one in expected]
    assert [column[::2] for column in shown] == ids
    assert [column[1::2] for column in shown] == ids


def test_every_image_says_the_true_class_and_the_prediction(page, toy):
    examples, audit = toy
    sheets = page.one("section", id="class-0").all("ul", class_="sheet")
    wanted = [places for one in audit.of_class(0) for places in (one.typical, one.others)]
    assert [len(sheet.all("li")) for sheet in sheets] == [len(places) for places in wanted]
    for sheet, places in zip(sheets, wanted, strict=True):
        for item, place in zip(sheet.all("li"), places, strict=True):
            assert item.all("p")[1].text.endswith(f"id {int(examples.ids[place])}")
            predicted = int(audit.probabilities[place].argmax())
            said = SCRIPT if predicted == 0 else f"{SCRIPT} → {BREAKOUT}"
            assert item.all("p")[0].text == said


def test_heat_maps_are_on_typical_examples_only(page):
    typical, others = page.one("section", id="class-0").all("ul", class_="sheet")[:2]
    assert {len(item.all("img")) for item in typical.all("li")} == {2}
    assert {len(item.all("img")) for item in others.all("li")} == {1}
    assert "GradCAM" in page.one("section", id="glance").text


def test_names_from_the_data_are_text_and_never_markup(page, file):
    text = file.read_text()
    assert SCRIPT in page.text
    assert BREAKOUT in page.text
    assert SCRIPT not in text
    assert "<img src=x" not in text
    assert "holdfast <audit>" in page.one("section", id="facts").text
    assert len(page.all("script")) == 1


def test_nothing_is_loaded_from_anywhere(page):
    places = [
        value
        for element in page.all("*")
        for name, value in element.attributes.items()
        if name in ("src", "href", "action", "data", "poster", "srcset") and value
    ]
    assert places
    assert all(place.startswith("data:") for place in places)


def test_each_class_has_its_silhouettes_and_confidences(page, toy):
    _, audit = toy
    for label in (0, 1):
        curve, confidences = page.one("section", id=f"class-{label}").all("figure")
        drawn = curve.one("path", class_="line").attributes["d"]
        assert drawn.count("L") + 1 == len(audit.partition.classes[label].curve)
        assert curve.one("span", class_="marked").text == f"chosen: {audit.partition.classes[label].k}"
        rows = confidences.all("div", class_="histogram")
        for row, one in zip(rows, audit.of_class(label), strict=True):
            assert len(row.all("rect")) == sum(count > 0 for count in one.histogram)
            assert ("worst" in row.attributes["class"]) == one.stands_out


def test_true_attributes_are_compared_in_a_folded_section_marked_as_a_check(page, toy):
    examples, audit = toy
    check = page.one("section", id="check")
    assert "For checking only" in check.text
    folded = check.one("details")
    assert "open" not in folded.attributes
    judged = judge_groups(audit.partition.clusters, examples.labels, examples.attributes)
    rows = folded.one("table", class_="judged").one("tbody").all("tr")
    for row, found in zip(rows, judged.classes.values(), strict=True):
        shares = (found.precision, found.recall, found.majority_recall)
        assert [cell.text for cell in row.all("td")][1:] == [f"{share:.1%}" for share in shares]
    counts = [int(cell.text or 0) for cell in folded.all("small")]
    assert sorted(counts) == sorted(judged.confusion[judged.confusion > 0].tolist() + [0] * counts.count(0))
    assert sum(counts) == len(examples)


def test_without_attributes_there_is_nothing_to_check(toy, tmp_path):
    examples, audit = toy
    bare = replace(examples, attributes=None, groups=None)
    page = read_page(write(tmp_path / "a.html", audit, bare).read_text())
    assert not page.all("section", id="check")
    assert page.one("section", id="glance").all("img")


def test_inputs_that_are_no_images_have_everything_but_sheets(toy, tmp_path):
    examples, audit = toy
    flat = Examples.of(torch.rand(240, 12), examples.labels, attributes=examples.attributes, ids=examples.ids)
    page = read_page(write(tmp_path / "a.html", audit, flat, model=nn.Linear(12, 2)).read_text())
    sections = [section.attributes["id"] for section in page.all("section")]
    assert sections == ["clusters", "class-0", "class-1", "check", "facts"]
    assert not page.all("img")
    assert "aren't images" in page.one("section", id="clusters").text
    assert len(page.all("figure")) == 4


def test_a_model_without_convolutions_has_no_heat_maps_and_the_page_says_why(toy, tmp_path):
    examples, audit = toy
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    page = read_page(write(tmp_path / "a.html", audit, examples, model=model).read_text())
    assert "GradCAM explains models with convolutions" in page.one("section", id="glance").text
    assert {len(item.all("img")) for item in page.all("li")} - {0} == {1}


def test_without_captum_the_page_says_what_to_install(toy, tmp_path, monkeypatch):
    found = builtins.__import__

    def without_captum(name, *args, **more):
        if name.startswith("captum"):
            raise ImportError(name)
        return found(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without_captum)
    examples, audit = toy
    page = read_page(write(tmp_path / "a.html", audit, examples, model=conv_model()).read_text())
    assert "pip install 'holdfast[gradcam]'" in page.one("section", id="glance").text
    assert page.one("section", id="glance").all("img")


def test_where_nothing_stands_out_the_page_says_so(toy, tmp_path):
    examples, _ = toy
    probabilities = torch.where(
        (examples.attributes == examples.labels)[:, None], torch.eye(2)[examples.labels], torch.tensor([0.5, 0.5])
    )
    probabilities[:, 0] += 1e-3 * (examples.labels == 0)
    probabilities[:, 1] += 1e-3 * (examples.labels == 1)
    page = read_page(write(tmp_path / "a.html", audit_of(examples, probabilities), examples).read_text())
    assert page.one("p", class_="number").text == "0"
    assert not page.all("section", id="glance")
    assert not page.all("tr", class_="worst")


def test_many_classes_are_folded_and_only_the_most_suspicious_are_in_the_headline(tmp_path):
    n = 12 * 40
    labels = torch.arange(n) % 12
    generator = torch.Generator().manual_seed(0)
    attributes = torch.where(torch.rand(n, generator=generator) < 0.2, (labels + 1) % 12, labels)
    examples = Examples.of(torch.rand(n, 3, 8, 8), labels, attributes=attributes)
    page = read_page(write(tmp_path / "a.html", audit_of(examples, shortcut(examples)), examples).read_text())
    assert [item.text for item in page.one("header").all("li")][-1] == "The other 2 classes are below."
    classes = [part for part in page.one("section", id="classes").children if part.name == "details"]
    assert len(classes) == 12


# ------------------------------------------------------------------------------------------------ what it stands on


def test_bars_are_as_high_as_their_counts_and_none_is_too_low_to_see():
    bars = read_page(histogram([0, 5, 10, 1000], "four bars")).all("rect")
    assert [float(bar.attributes["height"]) for bar in bars] == [30.0, 30.0, 1000.0]
    assert [float(bar.attributes["x"]) for bar in bars] == [270.0, 520.0, 770.0]
    (bar,) = read_page(histogram([500, 1000], "two", worst=True)).all("rect")[:1]
    assert (bar.attributes["height"], bar.attributes["y"], bar.attributes["class"]) == ("500.0", "500.0", "bar worst")


def test_an_overlay_is_grey_where_it_is_cold_and_orange_where_it_is_hot():
    picture = Image.fromarray(np.full((8, 8, 3), (0, 200, 0), np.uint8))
    heat = torch.zeros(8, 8)
    heat[:, 4:] = 1.0
    found = np.asarray(overlay(picture, heat)).astype(int)
    assert len(set(found[0, 0])) == 1
    red, green, blue = found[0, 7]
    assert red > green + 50
    assert green > blue


@pytest.mark.parametrize(("factor", "expected"), [(0.533, "0.53"), (9.86, "9.86"), (10.14, "10.1"), (250.0, "250")])
def test_factors_are_short(factor, expected):
    assert times(factor) == f"{expected}\N{MULTIPLICATION SIGN}"


# ----------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture
def shown(browser, file):
    """Opens the page; afterwards nothing may have complained and nothing may have been asked for."""

    @contextmanager
    def show(**options):
        context = browser.new_context(**options)
        page = context.new_page()
        complaints, requests = [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.resolve().as_uri())
        yield page
        context.close()
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [file.resolve().as_uri()]

    return show


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(shown, width):
    with shown(viewport={"width": width, "height": 800}) as page:
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_images_are_decoded_figures_have_a_size_and_headers_sort(shown):
    with shown(viewport={"width": 1280, "height": 900}, color_scheme="dark") as page:
        assert set(page.locator("img").evaluate_all("images => images.map(image => image.naturalWidth)")) == {8}
        for place in range(page.locator("figure svg[role=img]").count()):
            box = page.locator("figure svg[role=img]").nth(place).bounding_box()
            assert box["width"] > 150
            assert box["height"] > 20
        head = page.locator("table.clusters thead button", has_text="Weight")
        head.click()
        cells = page.locator("table.clusters tbody tr > :last-child")
        weights = [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]
        assert weights == sorted(weights)


@pytest.mark.browser
def test_the_accent_marks_the_suspect_in_the_light_and_in_the_dark(shown):
    for scheme in ("light", "dark"):
        with shown(color_scheme=scheme) as page:
            colours = (
                page.locator(".glance")
                .first.locator("h3")
                .evaluate_all("heads => heads.map(head => getComputedStyle(head).color)")
            )
            assert colours[0] not in colours[1:]
