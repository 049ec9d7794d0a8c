"""One self-contained page per fine-tuned two-tower model: where it looked before, where it looks now.

The same test images, some of every group, each with the map of its true class under the model as it came and under the
fine-tuned one. The table has what the pictures can't show: accuracy and AIoU by group, before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.multimodal.audit.explanations import class_maps
from holdfast.multimodal.audit.metrics import ExplanationScore
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.tasks.task import ClipTask, some_of_each_group
from holdfast.report.html.images import as_picture, image, overlay
from holdfast.report.html.markup import DASH, Html, number, percent, tag
from holdfast.report.html.page import findings, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, row_name, sortable
from holdfast.training.evaluation.group_report import GroupReport


@dataclass(frozen=True, eq=False)
class ModelSnapshot:
    """A model at one time.

    Attributes:
        report: its accuracies on the test set.
        score: its AIoU, where objects are outlined.
        maps: of the true class of each shown image, (n, height, width).
        predicted: what it says of each shown image, int64 of shape (n,).
    """

    report: GroupReport
    score: ExplanationScore | None
    maps: Tensor
    predicted: Tensor


def looked_at(
    tower: TwoTowerModel, task: ClipTask, report: GroupReport, score: ExplanationScore | None, places: Tensor
) -> ModelSnapshot:
    """What a tower makes of the test images at `places`, now."""
    images, labels = task.splits.test.gather(places)
    assert isinstance(images, Tensor)
    classifier = PromptClassifier.of(tower, task.wording)
    maps = class_maps(classifier, images)[torch.arange(len(places)), labels]
    with torch.no_grad():
        predicted = classifier(images.to(tower.logit_scale.device)).argmax(1).cpu()
    return ModelSnapshot(report, score, maps, predicted)


def shown_places(task: ClipTask, per_group: int = 6, seed: int = 0) -> Tensor:
    """Which test images a page shows."""
    return some_of_each_group(task.splits.test, per_group, seed)


def write_before_after(
    path: Path,
    before: ModelSnapshot,
    after: ModelSnapshot,
    test: Examples,
    *,
    places: Tensor,
    preprocessing: Preprocessing,
    name: str,
    about: str,
    facts: Mapping[str, Any],
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        before: the model as it came.
        after: the fine-tuned model.
        test: the test set.
        places: positions of the shown images.
        preprocessing: theirs, undone where they are shown.
        name: of the data set.
        about: how the model was fine-tuned, in a clause.
        facts: how, by name.

    Returns:
        Where the page is.
    """
    inputs = test.inputs.gather(places)
    assert isinstance(inputs, Tensor)
    pixels = preprocessing.pictures(inputs)
    groups = (test.labels if test.groups is None else test.groups)[places]
    names = [score.name for score in after.report.by_group]
    sheets = []
    for group in torch.unique(groups).tolist():
        rows = (groups == group).nonzero().flatten().tolist()
        sheets.append(tag("h3", names[group]))
        cards = (_two_maps(row, int(places[row]), pixels, before=before, after=after, test=test) for row in rows)
        sheets.append(tag("ul", *cards, class_="sheet"))
    lead = (
        "Each image as it is, before and after. Orange marks places that support its true class (GradCAM), scaled "
        "image by image."
    )
    content = [
        _headline(before, after, name, about),
        section("By group", _group_table(before, after), id_="groups"),
        section("Where it looks", tag("p", lead, class_="lead"), *sheets, id_="maps"),
        section("This run", facts_table(facts), id_="facts"),
    ]
    return write_page(path, f"{name}: before and after", *content)


def _headline(before: ModelSnapshot, after: ModelSnapshot, name: str, about: str) -> Html:
    worst, was = after.report.worst_accuracy, before.report.worst_accuracy
    sentences = [
        f"The worst group was {before.report.worst.name} with {percent(was)}; now it is {after.report.worst.name} with "
        f"{percent(worst)}."
    ]
    if before.score is not None and after.score is not None:
        sentences.append(
            f"AIoU was {before.score.average:.3f} on average over groups and is {after.score.average:.3f}; above one "
            "half the map of the true class covers the object better than that of any other class."
        )
    large = large_number("Worst group", f"{100 * worst:.1f}", "%", [f"{100 * was:.1f}% before"])
    return opening("holdfast, explanations", "test set", name, [about], hero(large, findings(*sentences)))


def _group_table(before: ModelSnapshot, after: ModelSnapshot) -> Html:
    rows = []
    for was, now in zip(before.report.by_group, after.report.by_group, strict=True):
        values = [was.accuracy, now.accuracy, _aiou(before, was.name), _aiou(after, now.name)]
        shown = [percent(values[0]), percent(values[1]), *(DASH if v is None else f"{v:.3f}" for v in values[2:])]
        head = tag("th", row_name(now.name, "worst" if now is after.report.worst else None), scope="row")
        cells = (tag("td", text, data_value="" if v is None else v) for text, v in zip(shown, values, strict=True))
        rows.append(tag("tr", head, tag("td", number(now.count), data_value=now.count), *cells))
    columns: Sequence[str] = ("Group", "Images", "Accuracy before", "after", "AIoU before", "after")
    return sortable(
        "Groups", "Accuracy and AIoU by group; the headers sort.", columns, rows, rising=None, class_="groups"
    )


def _aiou(looked: ModelSnapshot, group: str) -> float | None:
    return None if looked.score is None else looked.score.by_group.get(group)


def _two_maps(
    row: int, place: int, pixels: Tensor, *, before: ModelSnapshot, after: ModelSnapshot, test: Examples
) -> Html:
    picture = as_picture(pixels[row])
    assert picture is not None
    name, label = int(test.ids[place]), int(test.labels[place])
    shown = [image(picture, f"example {name}")]
    predictions = []
    for when, looked in (("before", before), ("after", after)):
        shown.append(image(overlay(picture, looked.maps[row]), f"where example {name} speaks for its class, {when}"))
        guess = int(looked.predicted[row])
        predictions.append(tag("b" if guess == label else "em", test.class_names[guess]))
    verdict = tag("p", predictions[0], " \N{RIGHTWARDS ARROW} ", predictions[1])
    return tag("li", *shown, verdict, note(f"id {name}"))
