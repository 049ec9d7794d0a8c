"""One self-contained page per audit of poisons: who stood alone, when, and what the network made of it.

The page is for somebody who must decide what to delete. Poisons and clean oddities both stand alone. What tells
them apart is for eyes: a label that doesn't fit, a pattern that returns, a source that all suspects share. So the page
has pictures, by class and by the round that dropped them, and says plainly that these are suspects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from holdfast.auditing.suspects import Accused
from holdfast.data.examples import Examples
from holdfast.errors import counted
from holdfast.poisoning.epic import Drop
from holdfast.poisoning.suspects import Suspect
from holdfast.report.html.charts import Axis, Line, chart, round_numbers
from holdfast.report.html.images import NO_IMAGES, image, pictures
from holdfast.report.html.markup import DASH, Html, join, number, percent, tag, times
from holdfast.report.html.page import findings, folded, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, sortable, sortable_row

_TILES = 24  # of a class
_UNFOLDED = 10
_NAMED = 4
_ROWS = 300


def write_suspects(
    path: Path,
    drops: Sequence[Drop],
    suspects: Sequence[Suspect],
    train: Examples,
    *,
    name: str,
    about: str,
    facts: Mapping[str, Any],
    second: Sequence[Accused] | None = None,
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        drops: EPIC's rounds.
        suspects: the examples that stood alone.
        train: the training set.
        name: of the data set.
        about: how it was audited, in a clause.
        facts: how the audit was made, by name.
        second: the suspects of both witnesses, by rising self-confidence, where there is a second opinion.

    Returns:
        Where the page is.
    """
    parts = [
        _headline(suspects, train, name, about, second),
        None if second is None else _both(second, train),
        section("When they were dropped", _dropped_so_far(drops, train), id_="when") if len(drops) > 1 else None,
        section("By class", _class_table(suspects, train), id_="classes"),
        *(_sheets(suspects, train) if second is None else _accused_sheets(second, train)),
        section("This audit", facts_table(facts), id_="facts"),
    ]
    return write_page(path, f"{name}: audit of poisons", *parts)


def second_sentences(second: Sequence[Accused]) -> list[str]:
    """What the second opinion says, a sentence each."""
    count = Counter(one.speaks for one in second)
    rare = sum(one.minority for one in second)
    said = [
        f"Of {counted(len(second), 'suspect')} both checks flag {number(count['both'])}, isolation alone "
        f"{number(count['isolation'])}, self-confidence alone {number(count['self-confidence'])}."
    ]
    if rare:
        said.append(
            f"{counted(rare, 'suspect')} {'lies' if rare == 1 else 'lie'} in a small cluster of the class: a rare "
            "group more likely than a poison."
        )
    return said


def _headline(
    suspects: Sequence[Suspect], train: Examples, name: str, about: str, second: Sequence[Accused] | None
) -> Html:
    share = len(suspects) / len(train)
    mistaken = [one for one in suspects if one.mistaken]
    sentences = [
        f"{counted(len(suspects), 'example')} of {number(len(train))} stood alone in gradient space and were dropped "
        "while the network learned.",
        f"{number(len(mistaken))} of them {'was' if len(mistaken) == 1 else 'were'} taken for another class then."
        if suspects
        else None,
        *(second_sentences(second) if second is not None else ()),
        "Poisons stand alone before they take effect. So do odd and mislabelled examples: these are suspects, not "
        "proven poisons.",
    ]
    large = large_number("Isolated", f"{100 * share:.1f}", "%", [counted(len(suspects), "example")])
    return opening("holdfast audit of poisons", "training set", name, [about], hero(large, findings(*sentences)))


def _dropped_so_far(drops: Sequence[Drop], train: Examples) -> Html:
    """The share of each class that was dropped so far; the most affected have names."""
    sizes = train.labels.bincount(minlength=train.n_classes)
    gone = torch.stack([drop.classes.bincount(minlength=train.n_classes) for drop in drops]).cumsum(0) / sizes
    epochs = [float(drop.epoch) for drop in drops]
    worst = gone[-1].argsort(descending=True).tolist()
    named = worst[: _NAMED if len(worst) > _NAMED + 2 else len(worst)]
    lines = [
        Line(
            train.class_names[label],
            tuple(zip(epochs, gone[:, label].tolist(), strict=True)),
            ("worst" if label == worst[0] else f"named-{named.index(label) - 1}") if label in named else "other",
            percent(float(gone[-1, label])),
        )
        for label in reversed(worst)
    ]
    highest = round_numbers(0.0, max(float(gone.max()), 0.01))
    digits = 0 if (100 * highest[1]).is_integer() else 1
    ticks = [epoch for epoch in round_numbers(epochs[0], epochs[-1]) if epochs[0] <= epoch <= epochs[-1]]
    return chart(
        "Dropped so far, by class",
        f"Share of each class that was dropped, over {len(drops)} rounds",
        lines,
        x=Axis(epochs[0], epochs[-1], tuple((epoch, f"{epoch:g}") for epoch in ticks)),
        y=Axis(0.0, max(highest[-1], float(gone.max())), tuple((share, percent(share, digits)) for share in highest)),
        marks=(),
        caption=join(["A class that loses far more than others is worth a look first: poisons share one."]),
    )


def _class_table(suspects: Sequence[Suspect], train: Examples) -> Html:
    sizes = train.labels.bincount(minlength=train.n_classes).tolist()
    average = len(suspects) / len(train)
    rows = []
    for label, name in enumerate(train.class_names):
        own = [one for one in suspects if one.label == label]
        share = len(own) / sizes[label] if sizes[label] else 0.0
        cells: tuple[tuple[str, object], ...] = (
            (number(sizes[label]), sizes[label]),
            (number(len(own)), len(own)),
            (percent(share), share),
            (times(share / average) if average else "", share),
            (number(sum(one.mistaken for one in own)), sum(one.mistaken for one in own)),
            (str(min(one.epoch for one in own)) if own else "", min((one.epoch for one in own), default=None)),
        )
        rows.append((share, sortable_row(name, cells)))
    columns = ("class", "examples", "isolated", "of the class", "beside all", "taken for others", "first in epoch")
    ordered = [row for _, row in sorted(rows, key=lambda pair: -pair[0])]
    return sortable("Classes", "What was isolated in each class", columns, ordered, rising=None, class_="groups")


def _both(second: Sequence[Accused], train: Examples) -> Html:
    """Suspects with what each witness says; by self-confidence, and any header sorts."""
    names = train.class_names
    rows = []
    for one in second[:_ROWS]:
        alone = one.isolated
        cells: tuple[tuple[str, object], ...] = (
            (names[one.label], names[one.label]),
            (f"{one.confidence:.3f}", one.confidence),
            (names[one.rather], names[one.rather]),
            (DASH if alone is None else str(alone.epoch), None if alone is None else alone.epoch),
            (DASH if alone is None else f"{alone.loss:.2f}", None if alone is None else alone.loss),
            (one.speaks, one.speaks),
        )
        rows.append(sortable_row(f"id {one.id}", cells, flag="small cluster" if one.minority else None))
    more = f" The first {number(_ROWS)} are shown; all are in suspects.csv." if len(second) > _ROWS else ""
    columns = ("example", "class", "self-confidence", "more likely", "isolated in epoch", "loss then", "flagged by")
    return section(
        "Two checks",
        note(
            "Self-confidence is the probability of the label by models that did not learn from the example: low for "
            "wrong labels. Isolation is EPIC's: early for poisons. A small cluster is where a rare group of the class "
            f"would be: look twice before you delete.{more}"
        ),
        sortable("Suspects", "Suspects by self-confidence", columns, rows, rising="self-confidence", class_="groups"),
        id_="witnesses",
    )


def _accused_sheets(second: Sequence[Accused], train: Examples) -> list[Html]:
    """Pictures of suspects, those first that both checks flag, then by self-confidence."""
    shown = sorted(second, key=lambda one: one.speaks != "both")[: _TILES * 2]
    if not shown:
        return []
    drawn = pictures(train, torch.tensor([one.position for one in shown]))
    if drawn is None:
        return [section("Suspects", NO_IMAGES, id_="suspects")]
    lead = tag("p", "First those that both checks flag, the least fitting label first.", class_="lead")
    cards = [_accused_card(one, picture, train) for one, picture in zip(shown, drawn, strict=True)]
    return [section("Suspects", lead, tag("ul", *cards, class_="sheet"), id_="suspects")]


def _accused_card(one: Accused, picture: Image.Image, train: Examples) -> Html:
    label, rather = train.class_names[one.label], train.class_names[one.rather]
    verdict = tag("b", label, " \N{RIGHTWARDS ARROW} ", tag("em", rather)) if one.wrong else tag("b", label)
    said = "isolation and self-confidence" if one.speaks == "both" else one.speaks
    alone = "" if one.isolated is None else f", epoch {one.isolated.epoch}"
    lines = [f"{said}{alone}, confidence {one.confidence:.2f}, id {one.id}"]
    lines += ["in a small cluster: rare rather than wrong?"] if one.minority else []
    when = "suspected" if one.isolated is None else f"isolated in epoch {one.isolated.epoch}"
    return tag("li", image(picture, f"example {one.id}, {label}, {when}"), tag("p", verdict),
               *(tag("p", line, class_="note") for line in lines))  # fmt: skip


def _sheets(suspects: Sequence[Suspect], train: Examples) -> list[Html]:
    """Pictures of suspects, class by class, the most affected class first."""
    by_class: dict[int, list[Suspect]] = {}
    for one in suspects:
        by_class.setdefault(one.label, []).append(one)
    if not by_class:
        return []
    shown = {label: own[:_TILES] for label, own in by_class.items()}
    flat = [one for own in shown.values() for one in own]
    drawn = pictures(train, torch.tensor([one.position for one in flat]))
    if drawn is None:
        return [section("Suspects", NO_IMAGES, id_="suspects")]
    picture_of = {one.id: picture for one, picture in zip(flat, drawn, strict=True)}
    order = sorted(by_class, key=lambda label: -len(by_class[label]) / int((train.labels == label).sum()))
    sheets = [
        (
            f"{train.class_names[label]}: {counted(len(by_class[label]), 'suspect')}",
            tag("ul", *(_suspect_card(one, picture_of[one.id], train) for one in shown[label]), class_="sheet"),
            note(f"The first {len(shown[label])} are shown.") if len(by_class[label]) > _TILES else None,
        )
        for label in order
    ]
    lead = tag(
        "p", "Those that were dropped first come first; within a round those with the highest loss.", class_="lead"
    )
    open_, closed = sheets[:_UNFOLDED], sheets[_UNFOLDED:]
    content = [part for title, *rest in open_ for part in (tag("h3", title), *rest)]
    if closed:
        more = [part for title, *rest in closed for part in (tag("h3", title), *rest) if part is not None]
        content.append(folded(f"The other {len(closed)} classes", *more))
    return [section("Suspects", lead, *content, id_="suspects")]


def _suspect_card(one: Suspect, picture: Image.Image, train: Examples) -> Html:
    label, predicted = train.class_names[one.label], train.class_names[one.predicted]
    alone = f"epoch {one.epoch}, loss {one.loss:.2f}, id {one.id}"
    alt = f"example {one.id}, {label}, isolated in epoch {one.epoch}"
    verdict = tag("b", label, " \N{RIGHTWARDS ARROW} ", tag("em", predicted)) if one.mistaken else tag("b", label)
    return tag("li", image(picture, alt), tag("p", verdict), tag("p", alone, class_="note"))
