"""One self-contained page per audit of a vision-language model: which visible things does it lean on, class by class?

The page is for the person who decides whether an attribute is spurious or a healthy part of a class. It puts images of
a class with the attribute beside images without it, each with the places that speak for what the model says. A large
discrepancy is a hint and no proof, and the page says so; it ends every finding with the line that records a verdict.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import counted
from holdfast.multimodal.audit.detection import Finding
from holdfast.multimodal.audit.evidence import Evidence, kindred_words
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.report.html.images import as_picture, card, overlay
from holdfast.report.html.markup import DASH, Html, join, number, percent, tag
from holdfast.report.html.page import code, findings, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, sortable, sortable_row

_SENTENCES = 5
_COLUMNS = ("Class", "Attribute", "With it", "Without it", "Discrepancy", "95% interval", "Information", "Taken for")


def write_evidence(
    path: Path,
    evidence: Evidence,
    examples: Examples,
    preprocessing: Preprocessing,
    *,
    name: str,
    about: str,
    folder: Path,
    facts: Mapping[str, Any],
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        evidence: what was found.
        examples: the images that were looked at.
        preprocessing: theirs, undone where they are shown.
        name: of the data set.
        about: which model was audited, in a clause.
        folder: where the audit will lie, for the lines to copy.
        facts: how the audit was made, by name.

    Returns:
        Where the page is.
    """
    pictures = _pictures(evidence, examples, preprocessing)
    findings = [
        _finding(at, one, evidence=evidence, examples=examples, pictures=pictures, folder=folder)
        for at, one in enumerate(evidence.findings[: len(evidence.samples)])
    ]
    parts = [
        _headline(evidence, examples, name, about),
        section("What the accuracy depends on", _ranking(evidence.findings, examples.class_names), id_="ranking")
        if evidence.findings
        else None,
        *findings,
        _credits(evidence, examples.class_names),
        section("This audit", _doubts(evidence, examples.class_names), facts_table(facts), id_="facts"),
    ]
    title = f"{name}: audit of a vision-language model"
    return write_page(path, title, *parts)


def sentence(one: Finding, names: Sequence[str]) -> str:
    """A finding in words."""
    confused = "" if one.confused is None else f"; mistakes are mostly taken for {names[one.confused]}"
    return (
        f"{names[one.label]} is recognised in {percent(one.accuracy_with)} of {number(one.support)} images with "
        f"{one.word} and in {percent(one.accuracy_without)} of {number(one.absent)} without{confused}."
    )


def _headline(evidence: Evidence, examples: Examples, name: str, about: str) -> Html:
    names = examples.class_names
    if evidence.findings:
        first = evidence.findings[0]
        large = large_number(
            "Largest discrepancy", f"{100 * first.delta:.1f}", " points", [f"{names[first.label]}, {first.word}"]
        )
        sentences = [sentence(one, names) for one in evidence.findings[:_SENTENCES]]
        sentences.append("Is the attribute part of what the class is, or does it only come along with it? You decide.")
    else:
        large = large_number("Found", "0", None, ["attributes"])
        sentences = ["No attribute with enough support makes a class easier to recognise."]
    over = "holdfast audit of a vision-language model"
    return opening(over, f"{evidence.part} set", name, [about], hero(large, findings(*sentences)))


def _ranking(findings: Sequence[Finding], names: Sequence[str]) -> Html:
    rows = []
    for one in findings:
        low, high = one.interval
        confused = DASH if one.confused is None else names[one.confused]
        cells: tuple[tuple[str | Html, object], ...] = (
            (one.word, one.word),
            (_accuracy_of(one.accuracy_with, one.support), one.accuracy_with),
            (_accuracy_of(one.accuracy_without, one.absent), one.accuracy_without),
            (f"{100 * one.delta:+.1f}", one.delta),
            (f"{100 * low:+.1f} to {100 * high:+.1f}", low),
            (f"{one.mutual_information:.3f}", one.mutual_information),
            (confused, confused),
        )
        rows.append(sortable_row(names[one.label], cells))
    caption = "Accuracy on a class's images with and without an attribute; the headers sort."
    return sortable("Attributes", caption, _COLUMNS, rows, rising=None, class_="groups")


def _accuracy_of(accuracy: float, of: int) -> Html:
    return join([percent(accuracy), " ", tag("small", f"of {number(of)}")])


def _finding(
    at: int,
    one: Finding,
    *,
    evidence: Evidence,
    examples: Examples,
    pictures: Mapping[int, tuple[Image.Image, Image.Image]],
    folder: Path,
) -> Html:
    label, sample = examples.class_names[one.label], evidence.samples[at]
    rows = []
    for title, places, of in (
        (f"With {one.word}", sample.present, one.support),
        (f"Without {one.word}", sample.absent, one.absent),
    ):
        rows.append(tag("h3", title, " ", tag("small", f"{len(places)} of {counted(of, 'image')}, at random")))
        rows.append(tag("ul", *(_image_card(place, evidence, examples, pictures) for place in places), class_="sheet"))
    command = ["holdfast", "audit", "verdict", str(folder), "--label", label, "--word", one.word]
    words = shlex.join([*command, "--verdict", "spurious", "--reviewer", "YOU", "--reason", "WHY"])
    lead = tag("p", sentence(one, examples.class_names), class_="lead")
    return section(
        f"{label}, {one.word}", lead, *rows, note("Write down what you decide:"), code(words), id_=f"finding-{at + 1}"
    )


def _image_card(
    place: int, evidence: Evidence, examples: Examples, pictures: Mapping[int, tuple[Image.Image, Image.Image]]
) -> Html:
    names, picture = examples.class_names, pictures[place]
    return card(
        picture[0],
        int(examples.ids[place]),
        true=names[int(examples.labels[place])],
        predicted=names[int(evidence.predictions.predicted[place])],
        confidence=float(evidence.predictions.confidence[place]),
        heat=picture[1],
        called=None if examples.names is None else str(examples.names[place]),
    )


def _credits(evidence: Evidence, names: Sequence[str]) -> Html | None:
    if not evidence.credits:
        return None
    lead = "The word of the box that the explanation map covers best, counted over some images of each class."
    items = [
        tag(
            "li",
            tag("b", names[label]),
            f", {counted(evidence.credited[label], 'image')}: ",
            ", ".join(f"{word} {count}" for word, count in words[:8]) or "no box is touched",
        )
        for label, words in evidence.credits.items()
    ]
    return section("What the model looks at", tag("p", lead, class_="lead"), tag("ul", *items), id_="credits")


def _doubts(evidence: Evidence, names: Sequence[str]) -> Html:
    kindred = kindred_words(evidence.attributes.words, names)
    sentences = [
        "Orange marks places that support what the model says (GradCAM), scaled image by image. A shortcut that has "
        "no place, such as the light, doesn't show there.",
        f"{counted(len(evidence.attributes.words), 'word')} were tried; with many of them some stand out by chance.",
        "Names of classes are no attributes, but their synonyms stay in"
        + (f": {', '.join(kindred[:12])} share a part with the name of a class." if kindred else "."),
        "Attributes that nobody names can't be found.",
    ]
    return tag("ul", *(tag("li", one) for one in sentences), class_="note")


def _pictures(
    evidence: Evidence, examples: Examples, preprocessing: Preprocessing
) -> dict[int, tuple[Image.Image, Image.Image]]:
    places = sorted(evidence.maps)
    if not places:
        return {}
    images = examples.inputs.gather(torch.tensor(places))
    assert isinstance(images, Tensor)
    drawn = {}
    for place, pixels in zip(places, preprocessing.pictures(images), strict=True):
        picture = as_picture(pixels)
        assert picture is not None
        drawn[place] = (picture, overlay(picture, evidence.maps[place]))
    return drawn
