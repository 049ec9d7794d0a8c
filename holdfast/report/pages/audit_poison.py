"""One self-contained page per audit of poisons: who stood alone, when, and what the network made of it.

The page is for somebody who must decide what to delete. Poisons and clean oddities both stand alone. What tells
them apart is for eyes: a label that doesn't fit, a pattern that returns, a source that all suspects share. So the page
has pictures, by class and by the round that dropped them, and says plainly that it accuses nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from holdfast.data.examples import Examples
from holdfast.poisoning.epic import Drop
from holdfast.poisoning.suspects import Suspect
from holdfast.report.html.charts import Axis, Line, chart, round_numbers
from holdfast.report.html.images import NO_IMAGES, image, pictures
from holdfast.report.html.markup import Html, counted, join, number, percent, tag, times
from holdfast.report.html.page import findings, folded, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, sortable, sortable_row

_TILES = 24  # of a class
_UNFOLDED = 10
_NAMED = 4


def write_suspects(
    path: Path,
    drops: Sequence[Drop],
    suspects: Sequence[Suspect],
    train: Examples,
    *,
    name: str,
    about: str,
    facts: Mapping[str, Any],
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

    Returns:
        Where the page is.
    """
    parts = [
        _headline(suspects, train, name, about),
        section("When they were dropped", _dropped_so_far(drops, train), id_="when") if len(drops) > 1 else None,
        section("By class", _class_table(suspects, train), id_="classes"),
        *_sheets(suspects, train),
        section("This audit", facts_table(facts), id_="facts"),
    ]
    return write_page(path, f"{name}: audit of poisons", *parts)


def _headline(suspects: Sequence[Suspect], train: Examples, name: str, about: str) -> Html:
    share = len(suspects) / len(train)
    mistaken = [one for one in suspects if one.mistaken]
    sentences = [
        f"{counted(len(suspects), 'example')} of {number(len(train))} stood alone in gradient space and were dropped "
        "while the network learned.",
        f"{number(len(mistaken))} of them {'was' if len(mistaken) == 1 else 'were'} taken for another class then."
        if suspects
        else None,
        "Poisons stand alone before they take effect. So do odd and mislabelled examples: this page accuses nobody.",
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
