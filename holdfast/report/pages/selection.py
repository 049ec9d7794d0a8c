"""One self-contained page per selection: what was chosen, out of which clusters, and what their examples look like.

The page is for somebody who is about to fine-tune on half of the data and wants to know what the other half was. It
shows how the losses of each cluster run and some texts of each, so that a cluster can be recognised: a kind of
question, a format, or noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import counted
from holdfast.finetuning.selection.s2l import S2lSelection
from holdfast.finetuning.trajectories import Trajectories
from holdfast.report.html.charts import Axis, Line, chart, round_numbers
from holdfast.report.html.health import health_banner
from holdfast.report.html.markup import Html, duration, join, number, percent, tag, times
from holdfast.report.html.page import (
    commands_to_copy,
    findings,
    folded,
    hero,
    large_number,
    note,
    opening,
    section,
    write_page,
)
from holdfast.report.html.tables import facts_table, sortable, sortable_row
from holdfast.training.health.check import Health

_UNFOLDED = 12
_MOST_CLUSTERS = 300  # with texts; a page of thousands would open slowly
_TEXTS = 3
_LETTERS = 220
_CURVES = 80
_SOURCES = 6  # by name, of a cluster

Ints = NDArray[np.int64]


def write_selection(
    path: Path,
    chosen: S2lSelection,
    data: Instructions,
    trajectories: Trajectories,
    *,
    about: str,
    facts: Mapping[str, Any],
    health: Health | None = None,
    commands: Mapping[str, str] | None = None,
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        chosen: what was chosen.
        data: what it was chosen from.
        trajectories: by which it was chosen.
        about: how it was chosen, in a clause.
        facts: how the selection was made, by name.
        health: whether what S2L assumes was so.
        commands: lines to copy, by what they are for.

    Returns:
        Where the page is.
    """
    parts = [
        _headline(chosen, data, trajectories, about),
        health_banner(health),
        section("How the losses run", _curves(chosen, trajectories), id_="curves"),
        section("Sources", sources_table(chosen.positions, data, _clusters_of_sources(chosen, data)), id_="sources")
        if _several(data)
        else None,
        section("Clusters", *_clusters(chosen, data, trajectories), id_="clusters"),
        section("This selection", facts_table(facts), *commands_to_copy(commands or {}), id_="facts"),
    ]
    title = f"{Path(data.name).name}: {counted(len(chosen.positions), 'example')} chosen"
    return write_page(path, title, *parts)


def _headline(chosen: S2lSelection, data: Instructions, trajectories: Trajectories, about: str) -> Html:
    share = len(chosen.positions) / len(data)
    sizes, taken = chosen.clusters.sizes, chosen.taken
    whole = int((taken == sizes).sum())
    left_out = int(trajectories.undefined.sum())
    side = "within" if _within_sources(chosen, data) else "across"
    sentences = [
        f"{counted(len(sizes), 'cluster')} of examples whose loss curves are similar"
        + (f", {side} {counted(len(data.source_names), 'source')}." if _several(data) else "."),
        f"{counted(whole, 'cluster')} {'is' if whole == 1 else 'are'} taken whole; of the largest, with "
        f"{number(int(sizes.max()))} examples, {number(int(taken[sizes.argmax()]))} are taken.",
        f"{counted(left_out, 'example')} had no room for a response and can't be chosen." if left_out else None,
        f"{counted(len(data.skipped), 'row')} passed over, such as: {data.skipped[0]}." if data.skipped else None,
        f"Training the proxy took {duration(took.training)}, recording its losses {duration(took.recording)}."
        if (took := trajectories.seconds)
        else None,
    ]
    who = f"{number(len(chosen.positions))} of {number(len(data))} examples"
    large = large_number("Chosen", f"{100 * share:.0f}", "%", [who])
    return opening("holdfast selection", "S2L", Path(data.name).name, [about], hero(large, findings(*sentences)))


def _curves(chosen: S2lSelection, trajectories: Trajectories) -> Html:
    """Mean trajectories of clusters behind those of all examples and of the chosen."""
    steps, clusters = trajectories.steps, chosen.clusters
    defined = ~trajectories.undefined
    shown = np.linspace(0, len(clusters.centres) - 1, min(_CURVES, len(clusters.centres))).astype(int)
    lines = [
        Line(
            f"cluster {place + 1}", _points(steps, clusters.centres[place]), "other", number(int(clusters.sizes[place]))
        )
        for place in shown
    ]
    means = {"all": trajectories.losses[defined].mean(0), "chosen": trajectories.losses[chosen.positions].mean(0)}
    lines += [
        Line(name, _points(steps, mean), f"named-{place}", f"{mean[-1]:.2f}")
        for place, (name, mean) in enumerate(means.items())
    ]
    seen = [y for line in lines for _, y in line.points]
    lowest = min(0.0, *seen)
    highest = max(seen) if max(seen) > lowest else lowest + 1
    heights = round_numbers(lowest, highest)
    places = [steps[0], *(int(step) for step in round_numbers(float(steps[0]), float(steps[-1]), 4) if step > steps[0])]
    caption = join(
        [
            "Mean loss of a response token under the proxy. ",
            f"Grey: {counted(len(shown), 'cluster')}{'' if len(shown) == len(clusters.centres) else ' of all'}. ",
            "Black: the mean of all examples; dashed: of the chosen ones.",
        ]
    )
    return chart(
        "Loss by cluster",
        f"Mean loss of {len(shown)} clusters over {len(steps)} points up to step {steps[-1]}",
        lines,
        x=Axis(
            float(steps[0]),
            float(max(steps[-1], steps[0] + 1)),
            tuple((float(step), number(step)) for step in places if step <= steps[-1]),
        ),
        y=Axis(lowest, max(highest, heights[-1]), tuple((height, f"{height:g}") for height in heights)),
        marks=(),
        caption=caption,
        along="steps of the proxy's training",
    )


def _clusters_of_sources(chosen: S2lSelection, data: Instructions) -> Ints | None:
    if not _within_sources(chosen, data):
        return None
    return np.bincount(chosen.clusters.sources, minlength=len(data.source_names))


def sources_table(positions: Ints, data: Instructions, clusters: Ints | None = None) -> Html:
    """What was chosen of each source.

    Args:
        positions: of the chosen examples.
        data: what they were chosen from.
        clusters: of each source, where each is a part of one.
    """
    counts = np.bincount(data.sources, minlength=len(data.source_names))
    taken = np.bincount(data.sources[positions], minlength=len(data.source_names))
    lifts = [float(part) for part in (taken / len(positions)) / (counts / len(data))]
    rows = [
        sortable_row(
            name,
            [
                (number(int(counts[place])), counts[place]),
                *([] if clusters is None else [(number(int(clusters[place])), clusters[place])]),
                (number(int(taken[place])), taken[place]),
                (percent(counts[place] / len(data)), counts[place]),
                (percent(taken[place] / len(positions)), taken[place]),
                (times(lifts[place]), lifts[place]),
            ],
        )
        for place, name in enumerate(data.source_names)
    ]
    own = () if clusters is None else ("clusters",)
    columns = ("source", "examples", *own, "chosen", "of the data", "of the choice", "weight")
    return sortable("Sources", "What was chosen of each source", columns, rows, rising=None, class_="groups")


def _clusters(chosen: S2lSelection, data: Instructions, trajectories: Trajectories) -> list[Html]:
    """Cards of clusters, those that gained most first."""
    sizes, taken, clusters = chosen.clusters.sizes, chosen.taken, chosen.clusters
    weight = (taken / len(chosen.positions)) / (sizes / len(data))
    order = np.lexsort((-sizes, -weight))
    picked = np.zeros(len(data), np.bool_)
    picked[chosen.positions] = True
    members = _members(clusters.labels, len(sizes))
    within = _within_sources(chosen, data)
    cards = [
        _cluster_card(
            int(place),
            chosen,
            data,
            typical=members[place][np.argsort(_distances(trajectories, members[place], clusters.centres[place]))],
            picked=picked,
            weight=float(weight[place]),
            within=within,
        )
        for place in order[:_MOST_CLUSTERS]
    ]
    lead = tag(
        "p",
        "Clusters whose share grew most come first, with their mean loss before that of all clusters (grey). Texts are "
        "those nearest the middle of their cluster; a dot stands before those that were chosen.",
        class_="lead",
    )
    rest = cards[_UNFOLDED:]
    left_out = len(sizes) - len(cards)
    return [
        lead,
        *cards[:_UNFOLDED],
        *([folded(f"The other {number(len(rest))} clusters", *rest)] if rest else []),
        *([note(f"{counted(left_out, 'cluster')} more are in clusters.parquet.")] if left_out else []),
    ]


def _cluster_card(
    place: int,
    chosen: S2lSelection,
    data: Instructions,
    *,
    typical: Ints,
    picked: NDArray[np.bool_],
    weight: float,
    within: bool,
) -> Html:
    clusters, several = chosen.clusters, _several(data)
    name = data.source_names[clusters.sources[place]]
    title = f"Cluster {place + 1}" + (f" of {name}" if several and within else "")
    mixed = note(_mix(data.sources[typical], data.source_names)) if several and not within else None
    taken = (
        f"{number(int(chosen.taken[place]))} of {number(len(typical))} chosen, {times(weight)} as frequent as before"
    )
    texts = [
        tag(
            "li",
            tag("p", short(prompt[-1][1] if (prompt := data.chats[position].prompt) else "")),
            tag("p", short(data.chats[position].response), class_="response"),
            class_="chosen" if picked[position] else None,
        )
        for position in typical[:_TEXTS]
    ]
    curve = _spark(clusters.centres[place], clusters.centres)
    return tag(
        "article",
        tag("div", tag("h3", title, " ", tag("small", taken)), curve, class_="cluster-head"),
        mixed,
        tag("ul", *texts, class_="texts"),
        class_="cluster",
    )


def _several(data: Instructions) -> bool:
    return len(data.source_names) > 1


def _within_sources(chosen: S2lSelection, data: Instructions) -> bool:
    """Whether each cluster is a part of one source; clusters of all the data at once name no source of their own."""
    grouped = chosen.clusters.labels >= 0
    return np.array_equal(chosen.clusters.sources[chosen.clusters.labels[grouped]], data.sources[grouped])


def _mix(sources: Ints, names: Sequence[str]) -> str:
    """How many examples of a cluster are of which source, the most frequent first."""
    counts = np.bincount(sources, minlength=len(names))
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    most = [f"{number(int(counts[place]))} of {names[place]}" for place in order[:_SOURCES]]
    rest = order[_SOURCES:]
    more = [f"{number(int(counts[rest].sum()))} of {counted(len(rest), 'other source')}"] if len(rest) else []
    return "Sources: " + ", ".join([*most, *more])


def _distances(trajectories: Trajectories, members: Ints, centre: NDArray[np.float32]) -> NDArray[np.float32]:
    squared: NDArray[np.float32] = np.square(trajectories.losses[members] - centre).sum(1)
    return squared


def _spark(values: NDArray[np.float32], centres: NDArray[np.float32]) -> Html:
    """A small curve of a cluster's losses before the mean of all clusters; all have the same height."""
    top = float(centres.max()) or 1.0

    def path(losses: NDArray[np.float32], kind: str) -> Html:
        across = np.linspace(0, 120, len(losses))
        pairs = (f"{x:.1f} {28 * (1 - y / top):.1f}" for x, y in zip(across, losses, strict=True))
        return tag("path", d="M" + "L".join(pairs) + "h0", class_=f"line {kind}")

    label = f"loss from {values[0]:.2f} to {values[-1]:.2f}"
    return tag(
        "svg",
        tag("title", label),
        path(centres.mean(0), "other"),
        path(values, "named-0"),
        viewBox="0 0 120 30",
        width=120,
        height=30,
        role="img",
        aria_label=label,
    )


def _members(labels: Ints, count: int) -> list[Ints]:
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    return np.split(order, np.cumsum(np.bincount(labels[labels >= 0], minlength=count)))[:-1]


def _points(steps: Sequence[int], losses: NDArray[np.float32]) -> tuple[tuple[float, float], ...]:
    return tuple((float(step), float(loss)) for step, loss in zip(steps, losses, strict=True))


def short(text: str) -> str:
    """The beginning of a text, in one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LETTERS else flat[: _LETTERS - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
