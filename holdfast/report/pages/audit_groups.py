"""One self-contained page per audit of groups: `write_audit` shows a person what SPARE's clusters have in common.

The page is for somebody who has class labels and a suspicion. It says in plain words which clusters of a class are
taken for another class, and puts their members beside those of that class and beside the rest of their own: what the
first two have in common and the third lacks is the shortcut. The accent colour marks the clusters that stand out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, MissingDependencyError, counted
from holdfast.models.saliency import heat_maps
from holdfast.report.html.charts import Axis, Line, Mark, chart, histogram
from holdfast.report.html.images import NO_IMAGES, card, image, overlay, pictures
from holdfast.report.html.markup import DASH, Html, join, number, percent, tag, times
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
from holdfast.report.html.tables import facts_table, heat_cell, row_name, scrolling, sortable
from holdfast.spurious.group_inference.discovery import Cluster, GroupAudit, rank
from holdfast.spurious.group_inference.quality import InferenceQuality, judge_groups
from holdfast.training.health.check import Finding

#: A silhouette under this often marks a majority that was split in two: measured on the bundled coloured digits, see
#: claim S4 of `holdfast.papers.spare.digits`.
DOUBTFUL = 0.7
_WELL_SEPARATED = 0.9
#: The smallest published minorities have half a percent of their class.
_NEARLY_ALL = 0.998
_SENTENCES = 10
_GLANCES = 3
_UNFOLDED = 10
_TILES = 8


def write_audit(
    path: Path,
    audit: GroupAudit,
    examples: Examples,
    *,
    name: str,
    about: str,
    facts: Mapping[str, Any],
    commands: Mapping[str, str] | None = None,
    model: nn.Module | None = None,
    looks: Sequence[Finding] = (),
) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        audit: the clusters of the training set.
        examples: that training set; its attributes, if it has any, are compared with the clusters in a folded section.
        name: of the data set.
        about: what was audited, in a clause: ``"mlp after 2 epochs"``.
        facts: how the audit was made, by name.
        commands: lines to copy, by what they are for.
        model: the model that was audited, for GradCAM; where it has no convolutions or captum is missing, the page does
            without.
        looks: whether clusters that stand out have a look of their own, or may be wrong labels, see
            `holdfast.auditing.own_look`.

    Returns:
        Where the page is.

    Raises:
        CheckpointError: if the page can't be written; an earlier one is left alone.
    """
    sheets = _draw(audit, examples, model)
    names = examples.class_names
    glance = _glance(audit, names, sheets)
    parts = [
        _headline(audit, names, name, about, looks),
        glance,
        _cluster_table(audit, names, None if glance else sheets.remark),
        *_classes(audit, names, sheets),
        _check(audit, examples),
        _audit_section(facts, commands or {}),
    ]
    return write_page(path, f"{name}: audit of groups", *parts)


# ----------------------------------------------------------------------------------------------------- in words


def class_sentence(clusters: Sequence[Cluster], names: Sequence[str]) -> str:
    """What is remarkable about the clusters of one class.

    Args:
        clusters: all clusters of the class.
        names: of the classes.

    Returns:
        A sentence or two: ``2 clusters. Cluster 1 (244 examples, 5.0%) is taken for 0-4 in 98% of cases.``
    """
    if len(clusters) == 1:
        return f"One cluster of {counted(clusters[0].size, 'example')}, so there is nothing to compare."
    suspects = [(one, names[one.mistaken_for]) for one in clusters if one.stands_out and one.mistaken_for is not None]
    if not suspects:
        return f"{len(clusters)} clusters; none is taken for one other class in most cases."
    size, share = sum(one.size for one, _ in suspects), sum(one.share for one, _ in suspects)
    about = f"({counted(size, 'example')}, {percent(share)})"
    least = min(one.mistaken for one, _ in suspects)
    if len(suspects) == 1:
        ((one, target),) = suspects
        sentence = f"Cluster {one.cluster} {about} is taken for {target} in {_whole_percent(least)} of cases."
    else:
        often = "in all cases" if least == 1 else f"in at least {_whole_percent(least)} of cases"
        numbers = _and([str(one.cluster) for one, _ in suspects])
        targets = _and(list(dict.fromkeys(target for _, target in suspects)))
        sentence = f"Clusters {numbers} {about} are taken for {targets}, {often}."
    return f"{len(clusters)} clusters. {sentence}"


def doubts(audit: GroupAudit, names: Sequence[str], looks: Sequence[Finding] = ()) -> list[str]:
    """Why some clusters should not be trusted, a sentence for each reason.

    Args:
        audit: the clusters.
        names: of the classes.
        looks: whether clusters that stand out have a look of their own, or may be wrong labels.
    """
    classes = audit.partition.classes
    split = {
        label: separation.silhouette.value
        for label, separation in classes.items()
        if separation.silhouette is not None and separation.silhouette.value < DOUBTFUL
    }
    largest = {label: audit.of_class(label)[0] for label in classes}
    sentences = [
        f"{one.sentence[:1].upper()}{one.sentence[1:]}. {one.remedy[:1].upper()}{one.remedy[1:]}."
        for one in looks
        if one.verdict != "ok"
    ]
    if split:
        classes_in_doubt = _first_few([f"{names[label]} ({value:.2f})" for label, value in sorted(split.items())])
        sentences.append(
            f"The silhouette of {classes_in_doubt} is under {DOUBTFUL}: that is often a majority split in two, not a "
            "minority that was found. Audit after another epoch, or look closely before you trust the clusters."
        )
    if nearly := [names[label] for label, one in largest.items() if _NEARLY_ALL < one.share < 1]:
        sentences.append(
            f"One cluster holds nearly all of {_first_few(nearly)}, so the others may be a handful of odd examples "
            "rather than a group."
        )
    if constant := [names[label] for label, separation in classes.items() if separation.k == 1]:
        sentences.append(
            f"The model gives the same output for all of {_first_few(constant)}, so there is one cluster. Audit "
            "after more epochs, or with a higher learning rate."
        )
    if unknown := [names[label] for label, one in largest.items() if one.accuracy < 0.5]:
        sentences.append(
            f"The model gets most of {_first_few(unknown)} wrong, the largest cluster included: it hardly knows "
            "that class yet. Audit after more epochs."
        )
    return sentences


def _and(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _first_few(words: Sequence[str], most: int = 5) -> str:
    more = f" and {counted(len(words) - most, 'other')}" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _whole_percent(share: float) -> str:
    """A share in whole percent that says all and none only where it is so."""
    return ">99%" if 0.995 <= share < 1 else "<1%" if 0 < share < 0.005 else percent(share, 0)


# ----------------------------------------------------------------------------------------------------- sections


def _headline(audit: GroupAudit, names: Sequence[str], name: str, about: str, looks: Sequence[Finding]) -> Html:
    labels = sorted(audit.partition.classes)
    if len(labels) > _SENTENCES:
        worst_first = dict.fromkeys(cluster.label for cluster in rank(audit.clusters))
        shown, rest = list(worst_first)[:_SENTENCES], len(labels) - _SENTENCES
    else:
        shown, rest = labels, 0
    sentences = [
        join([tag("b", f"Class {names[label]}: "), class_sentence(audit.of_class(label), names)]) for label in shown
    ]
    more = f"The other {rest} classes are below." if rest else None
    told = [f"{one.sentence[:1].upper()}{one.sentence[1:]}." for one in looks if one.verdict == "ok"]
    return opening(
        "holdfast audit of groups",
        "training set",
        name,
        [about],
        hero(_verdict(audit, names), findings(*sentences, more, *told)),
        *(tag("p", text, class_="banner") for text in doubts(audit, names, looks)),
    )


def _verdict(audit: GroupAudit, names: Sequence[str]) -> Html:
    suspects = audit.suspects
    if not suspects:
        return large_number(
            "Clusters that stand out",
            "0",
            None,
            ["No cluster is taken for one other class in most cases."],
            note("A fully trained network may have memorised its exceptions: audit an early one too.")
            if audit.epoch is None
            else None,
        )
    first = suspects[0]
    assert first.mistaken_for is not None
    others = counted(len(suspects) - 1, "other cluster")
    return large_number(
        "The most suspicious cluster",
        _whole_percent(first.mistaken)[:-1],
        "%",
        [
            "of ",
            tag("b", _title(first, names)),
            f" ({number(first.predicted[first.mistaken_for])} of {number(first.size)} examples) are taken for ",
            tag("b", names[first.mistaken_for]),
            ".",
        ],
        note(f"{others} {'stands' if len(suspects) == 2 else 'stand'} out in the same way.")
        if len(suspects) > 1
        else None,
    )


def _glance(audit: GroupAudit, names: Sequence[str], sheets: _Sheets) -> Html | None:
    """The most suspicious cluster of each class beside those it should be compared with."""
    first_of_class = {cluster.label: cluster for cluster in reversed(audit.suspects)}
    chosen = [cluster for cluster in audit.suspects if first_of_class[cluster.label] is cluster][:_GLANCES]
    if not chosen or not sheets.pictures:
        return None
    lead = tag(
        "p",
        "An early network follows the easiest feature first, and examples on which that feature points to another "
        "class end up in a cluster of their own. ",
        tag("b", "Is there something that the first two have in common and the third lacks? That is the shortcut."),
        class_="lead",
    )
    compared = [_comparison(one, audit, names, sheets) for one in chosen]
    return section("Look for the shortcut", lead, *compared, sheets.remark, id_="glance")


def _comparison(suspect: Cluster, audit: GroupAudit, names: Sequence[str], sheets: _Sheets) -> Html:
    assert suspect.mistaken_for is not None
    true, predicted = names[suspect.label], names[suspect.mistaken_for]
    rest = next((one for one in audit.of_class(suspect.label) if one is not suspect), None)
    target = next(iter(audit.of_class(suspect.mistaken_for)), None)
    columns = [
        (
            f"{true}, cluster {suspect.cluster}",
            f"taken for {predicted} in {_whole_percent(suspect.mistaken)} of cases",
            suspect,
        ),
        (f"Most of {predicted}", "what they are taken for", target),
        (f"The rest of {true}" if suspect.cluster == 0 else f"Most of {true}", "the class they belong to", rest),
    ]
    shown = [
        tag("div", tag("h3", title, tag("small", note_)), sheets.strip(cluster), class_="worst" if not place else None)
        for place, (title, note_, cluster) in enumerate(columns)
        if cluster is not None
    ]
    return tag("div", *shown, class_="glance")


def _cluster_table(audit: GroupAudit, names: Sequence[str], remark: Html | None) -> Html:
    columns = ("Cluster", "Examples", "Of class", "Silhouette", "Accuracy", "Mistaken for", "How often", "Weight")
    rows = [_cluster_row(cluster, audit, names) for cluster in rank(audit.clusters)]
    caption = "The clusters of every class, most suspicious first; the headers sort."
    return section(
        "Every cluster",
        note("Most suspicious first. Cluster 0 is the largest of its class. Click a header to sort by it."),
        sortable("Clusters", caption, columns, rows, rising=None, class_="groups clusters"),
        note(
            "Silhouette: how well the clusters of the class are separated, at most 1. Weight: how often SPARE would "
            "draw an example of the cluster, in multiples of plain shuffling."
        ),
        remark,
        id_="clusters",
    )


def _cluster_row(cluster: Cluster, audit: GroupAudit, names: Sequence[str]) -> Html:
    silhouette = audit.partition.classes[cluster.label].silhouette
    value = None if silhouette is None else silhouette.value
    target = cluster.mistaken_for
    flag = "stands out" if cluster.stands_out else None
    # not `sortable_row`: the share of accuracy is set apart by its looks
    return tag(
        "tr",
        tag("th", row_name(_title(cluster, names), flag), scope="row", data_value=_title(cluster, names)),
        tag("td", number(cluster.size), data_value=cluster.size),
        tag("td", percent(cluster.share), data_value=cluster.share),
        tag("td", DASH if value is None else f"{value:.2f}", data_value="" if value is None else value),
        tag("td", percent(cluster.accuracy), data_value=cluster.accuracy, class_="share"),
        tag("td", DASH if target is None else names[target], data_value="" if target is None else names[target]),
        tag("td", DASH if target is None else percent(cluster.mistaken), data_value=cluster.mistaken),
        tag("td", times(cluster.weight), data_value=cluster.weight),
        class_="worst" if cluster.stands_out else None,
    )


def _classes(audit: GroupAudit, names: Sequence[str], sheets: _Sheets) -> list[Html]:
    parts = []
    for label in sorted(audit.partition.classes):
        clusters = audit.of_class(label)
        figures = tag("div", _silhouettes(audit, label), _confidences(clusters, names), class_="columns small")
        shown = [sheets.sheet(cluster) for cluster in clusters] if sheets.pictures else []
        if shown and len(audit.clusters) > _UNFOLDED:
            shown = [folded(f"Examples of its {counted(len(clusters), 'cluster')}", *shown)]
        content = [tag("p", class_sentence(clusters, names), class_="lead"), figures, *shown]
        parts.append((label, f"Class {names[label]}", content))
    if len(parts) > _UNFOLDED:
        return [section("Class by class", *(folded(title, *content) for _, title, content in parts), id_="classes")]
    return [section(title, *content, id_=f"class-{label}") for label, title, content in parts]


def _silhouettes(audit: GroupAudit, label: int) -> Html | None:
    separation = audit.partition.classes[label]
    points = tuple((float(k), score.value) for k, score in sorted(separation.curve.items()))
    if not points:
        return None
    low = 0.5 if min(value for _, value in points) >= 0.5 else min(0.0, *(value for _, value in points))
    ticks = [low, *(value for value in (0.5, DOUBTFUL, _WELL_SEPARATED, 1.0) if value > low)]
    ends = points[0][0], max(points[-1][0], points[0][0] + 1)
    return chart(
        "How many clusters",
        "Silhouette by number of clusters: " + ", ".join(f"{value:.2f} for {k:.0f}" for k, value in points),
        [Line("silhouette", points, "named-0")],
        x=Axis(*ends, tuple((k, f"{k:.0f}") for k, _ in points)),
        y=Axis(low, 1.0, tuple((value, f"{value:.2g}") for value in ticks)),
        marks=[Mark(float(separation.k), "chosen", f"chosen: {separation.k}")],
        caption=join(
            [
                "The number with the highest silhouette is chosen. ",
                f"From {_WELL_SEPARATED} on clusters are well separated, under {DOUBTFUL} they are doubtful.",
            ]
        ),
        along="clusters",
        labelled=False,
    )


def _confidences(clusters: Sequence[Cluster], names: Sequence[str]) -> Html:
    rows = []
    for cluster in clusters:
        average = f"{_whole_percent(cluster.confidence)} on average"
        label = f"Probability of the true class in cluster {cluster.cluster}, {average}"
        kind = "histogram worst" if cluster.stands_out else "histogram"
        drawing = histogram(cluster.histogram, label, worst=cluster.stands_out)
        head = tag("p", tag("b", f"cluster {cluster.cluster}"), tag("span", average))
        rows.append(tag("div", head, drawing, class_=kind))
    ends = tag("div", tag("span", "0%"), tag("span", "50%"), tag("span", "100%"), class_="ends")
    caption = f"How probable the model finds {names[clusters[0].label]} for its examples; bars are scaled by cluster."
    return tag("figure", tag("h3", "Confidence in the true class"), *rows, ends, tag("figcaption", caption))


def _check(audit: GroupAudit, examples: Examples) -> Html | None:
    if examples.attributes is None:
        return None
    partition, names = audit.partition, (examples.class_names, examples.attribute_names)
    judged = judge_groups(partition.clusters, partition.labels, examples.attributes)
    tables = [_attribute_table(judged, label, *names) for label in sorted(judged.classes)]
    return section(
        "Compared with the true attributes",
        note("For checking only: this data set happens to have an attribute per example. The audit didn't look at it."),
        folded("Show the comparison", _recall_table(judged, *names), *tables),
        id_="check",
    )


def _recall_table(judged: InferenceQuality, classes: Sequence[str], attributes: Sequence[str]) -> Html:
    heads = ("Class", "Majority", "Precision", "Recall", "Recall of the majority")
    rows = [
        tag(
            "tr",
            tag("th", classes[label], scope="row"),
            tag("td", attributes[quality.majority]),
            *(tag("td", percent(share)) for share in (quality.precision, quality.recall, quality.majority_recall)),
        )
        for label, quality in sorted(judged.classes.items())
    ]
    sentence = (
        "The largest cluster of a class is taken for its majority, the others together for its minorities. Precision: "
        "how many of those inferred are true minorities. Recall: how many of the true minorities were inferred."
    )
    body = [tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))), tag("tbody", *rows)]
    return join([tag("div", tag("table", *body, class_="judged"), **scrolling("Precision and recall")), note(sentence)])


def _attribute_table(judged: InferenceQuality, label: int, classes: Sequence[str], attributes: Sequence[str]) -> Html:
    """Attributes of a class by cluster: its block of the confusion matrix."""
    columns = [place for place, (of, _) in enumerate(judged.inferred_groups) if of == label]
    rows = []
    for place, (of, attribute) in enumerate(judged.true_groups):
        if of == label:
            counts = [int(judged.confusion[place, column]) for column in columns]
            cells = [
                heat_cell(count, sum(counts), f"{attributes[attribute]} in cluster {judged.inferred_groups[column][1]}")
                for count, column in zip(counts, columns, strict=True)
            ]
            rows.append(tag("tr", tag("th", attributes[attribute], scope="row"), *cells))
    heads = [tag("th", f"cluster {judged.inferred_groups[column][1]}", scope="col") for column in columns]
    title = f"Class {classes[label]}"
    table = tag(
        "table",
        tag("thead", tag("tr", tag("th", title, scope="col"), *heads)),
        tag("tbody", *rows),
        class_="confusion",
    )
    return tag("div", table, **scrolling(f"Attributes of {classes[label]} by cluster"))


def _audit_section(facts: Mapping[str, Any], commands: Mapping[str, str]) -> Html:
    return section("This audit", facts_table(facts), *commands_to_copy(commands), id_="facts")


def _title(cluster: Cluster, names: Sequence[str]) -> str:
    return f"{names[cluster.label]}, cluster {cluster.cluster}"


# ------------------------------------------------------------------------------------------------------- images


@dataclass(frozen=True, eq=False)
class _Sheets:
    """The examples of an audit as images.

    Attributes:
        audit: the clusters.
        examples: the training set.
        pictures: of all examples that are shown, by position; none where the inputs are no images.
        heat: typical examples under their heat maps, by position.
        remark: what the heat maps are, or why something is missing.
    """

    audit: GroupAudit
    examples: Examples
    pictures: Mapping[int, Image.Image]
    heat: Mapping[int, Image.Image]
    remark: Html | None

    def sheet(self, cluster: Cluster) -> Html:
        """Typical and random members of a cluster, with what the model says of them."""
        facts = f"{counted(cluster.size, 'example')}, {percent(cluster.accuracy)} right"
        accent = "worst" if cluster.stands_out else None
        parts = [tag("h3", f"Cluster {cluster.cluster} ", tag("small", facts), class_=accent)]
        for title, places in (("Typical", cluster.typical), ("Drawn at random", cluster.others)):
            if places:
                parts.append(tag("p", title, class_="note"))
                parts.append(tag("ul", *map(self._card, places), class_="sheet small"))
        return join(parts)

    def strip(self, cluster: Cluster) -> Html:
        """Typical members of a cluster, without words."""
        shown = []
        for place in cluster.typical[: _TILES // 2 if self.heat else _TILES]:
            name = int(self.examples.ids[place])
            shown.append(image(self.pictures[place], f"example {name}"))
            if place in self.heat:
                shown.append(image(self.heat[place], f"where the model looked in example {name}"))
        return tag("div", *shown, class_="images")

    def _card(self, place: int) -> Html:
        names, confidence = self.examples.class_names, self.audit.probabilities[place]
        predicted = int(confidence.argmax())
        return card(
            self.pictures[place],
            int(self.examples.ids[place]),
            true=names[int(self.examples.labels[place])],
            predicted=names[predicted],
            confidence=float(confidence[predicted]),
            heat=self.heat.get(place),
            called=None if self.examples.names is None else str(self.examples.names[place]),
        )


def _draw(audit: GroupAudit, examples: Examples, model: nn.Module | None) -> _Sheets:
    """Read what is shown, and have the model explain what is typical."""
    wanted = sorted({place for one in audit.clusters for place in (*one.typical, *one.others)})
    drawn = pictures(examples, torch.tensor(wanted))
    if drawn is None:
        return _Sheets(audit, examples, {}, {}, NO_IMAGES)
    by_place = dict(zip(wanted, drawn, strict=True))
    if model is None:
        return _Sheets(audit, examples, by_place, {}, None)
    places = torch.tensor(sorted({place for one in audit.clusters for place in one.typical}))
    inputs, _ = examples.gather(places)
    assert isinstance(inputs, Tensor)
    try:
        maps = heat_maps(model, inputs, audit.probabilities[places].argmax(1))
    except MissingDependencyError as error:
        return _Sheets(audit, examples, by_place, {}, note(f"There are no heat maps: {error}."))
    except ConfigError:
        why = "There are no heat maps: GradCAM explains models with convolutions, and this one has none."
        return _Sheets(audit, examples, by_place, {}, note(why))
    heat = {place: overlay(by_place[place], one) for place, one in zip(places.tolist(), maps, strict=True)}
    sentence = (
        "Orange marks places that support the predicted class (GradCAM), scaled image by image. "
        "A shortcut that has no place, such as a colour, doesn't show there."
    )
    return _Sheets(audit, examples, by_place, heat, note(sentence))
