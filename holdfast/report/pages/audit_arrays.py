"""One self-contained page per audit of arrays: wrong labels, suspected groups, near duplicates and outliers.

The page is for somebody who has the outputs of a model and no wish to train another. Each kind of finding has a table
of what is most suspicious, with the row of the arrays to look it up by; all are in ``examples.csv`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import torch
from torch import Tensor

from holdfast.auditing.arrays import ArrayAudit, Surroundings, audit_arrays
from holdfast.auditing.wrong_labels import LabelQuality
from holdfast.errors import ConfigError, counted
from holdfast.files import write_atomically, written_whole
from holdfast.report.html.markup import DASH, Html, number, percent, tag, times
from holdfast.report.html.page import findings, hero, large_number, note, opening, section, write_page
from holdfast.report.html.tables import facts_table, sortable, sortable_row
from holdfast.spurious.group_inference.discovery import Cluster, rank

_ROWS = 100
_MEMBERS = 12


def audit(
    labels: Any,
    probabilities: Any = None,
    features: Any = None,
    *,
    out: Path | str | None = None,
    class_names: Sequence[str] | None = None,
    neighbours: int = 10,
    k_max: int = 5,
    seed: int = 0,
    name: str = "arrays",
    facts: Mapping[str, Any] | None = None,
) -> ArrayAudit:
    """Look for wrong labels, groups, near duplicates and outliers in the outputs of any model, and write a page.

    Args:
        labels: class of each example, whole numbers from 0, or words, of shape (n,).
        probabilities: of each class, by a model that did not learn from the example, shape (n, classes).
        features: a vector per example, shape (n, d).
        out: a folder for ``audit.html`` and ``examples.csv``; nothing is written where it is left out.
        class_names: a name per column of the probabilities.
        neighbours: to how many the distance is measured.
        k_max: try 2 to this many clusters in each class.
        seed: names the random streams.
        name: of the data, on the page.
        facts: what else the page should say of how it was made.

    Returns:
        What was found.

    Raises:
        DataError: if shapes disagree, a value is not finite, rows are no probabilities, or a label is no class.
        ConfigError: if there is something at `out`.

    Example:
        >>> found = audit([0, 0, 1, 1, 0], [[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]])
        >>> found.quality.wrong.nonzero().flatten().tolist()
        [4]
    """
    if out is not None and (place := Path(out)).exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ConfigError(f"{out} already exists; choose another place")
    found = audit_arrays(
        labels, probabilities, features, class_names=class_names, neighbours=neighbours, k_max=k_max, seed=seed
    )
    if out is not None:
        with written_whole(Path(out)) as folder:
            folder.mkdir()
            write_atomically(folder / "examples.csv", examples_csv(found))
            write_array_audit(folder / "audit.html", found, name=name, facts=facts or {})
    return found


def examples_csv(audit: ArrayAudit) -> bytes:
    """A line per example, in the order of the arrays: what was found of it."""
    names = pa.array(audit.class_names)

    def named(codes: Tensor) -> pa.Array:
        return names.take(pa.array(codes.numpy()))

    columns: dict[str, Any] = {"row": range(len(audit)), "label": named(audit.labels)}
    if audit.quality is not None and audit.partition is not None:
        quality = audit.quality
        columns |= {
            "self_confidence": quality.confidence.numpy(),
            "suggested": named(quality.suggested),
            "label_is_likely_wrong": quality.wrong.numpy(),
            "in_a_suspected_group": audit.in_groups.numpy(),
            "cluster": audit.partition.clusters.numpy(),
        }
    if (lies := audit.surroundings) is not None:
        columns |= {
            "distance": lies.distance.numpy(),
            "outlier": lies.outlier.numpy(),
            "duplicate_set": lies.duplicates.numpy(),
            "has_a_copy": lies.exact.numpy(),
        }
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def write_array_audit(path: Path, audit: ArrayAudit, *, name: str, facts: Mapping[str, Any]) -> Path:
    """Write the page.

    Args:
        path: the file; its folder must exist.
        audit: what was found.
        name: of the data.
        facts: how the audit was made, by name.

    Returns:
        Where the page is.
    """
    parts = [
        _headline(audit, name),
        None if audit.quality is None else _wrong_labels(audit, audit.quality),
        None if audit.quality is None else _class_table(audit, audit.quality),
        None if audit.partition is None else _groups(audit),
        None if audit.surroundings is None else _duplicates(audit, audit.surroundings),
        None if audit.surroundings is None else _outliers(audit, audit.surroundings),
        section("This audit", facts_table({"examples": number(len(audit)), **facts}), id_="facts"),
    ]
    return write_page(path, f"{name}: audit of arrays", *parts)


def sentences(audit: ArrayAudit) -> list[str]:
    """What was found, a sentence for each kind."""
    said = []
    if audit.quality is not None:
        wrong = int(audit.quality.wrong.sum())
        rare = int((audit.quality.wrong & audit.in_groups).sum())
        but = f"; but {number(rare)} of them lie in a cluster that is rather a group: rare, not wrong" if rare else ""
        said.append(f"{counted(wrong, 'label')} of {number(len(audit))} likely wrong{but}.")
        groups = audit.suspected_groups
        size = counted(sum(one.size for one in groups), "example")
        said.append(
            f"{counted(len(groups), 'cluster')} of a class, with {size}, mostly taken for one other class: "
            + ("a shortcut, or wrong labels." if groups else "no shortcut shows in these probabilities.")
        )
        odd = [found.sentence for one in groups if (found := audit.look(one)) is not None]
        said += [f"{clause[:1].upper()}{clause[1:]}." for clause in odd]
    else:
        said.append("Labels and groups were not looked at: that takes probabilities.")
    if (lies := audit.surroundings) is not None:
        sets = lies.sets()
        copies = int(lies.exact.sum())
        mixed = sum(len(_classes_of(audit, one)) > 1 for one in sets)
        said.append(
            f"{counted(len(sets), 'set')} of near duplicates ({number(copies)} examples have an exact copy), "
            f"{number(mixed)} of them with more than one label."
        )
        said.append(f"{counted(int(lies.outlier.sum()), 'outlier')}, far from every neighbour.")
    else:
        said.append("Duplicates and outliers were not looked for: that takes features.")
    return said


def _headline(audit: ArrayAudit, name: str) -> Html:
    if audit.quality is not None:
        wrong = int(audit.quality.wrong.sum())
        large = large_number(
            "Labels likely wrong", f"{100 * wrong / len(audit):.1f}", "%", [f"{number(wrong)} of {number(len(audit))}"]
        )
    else:
        assert audit.surroundings is not None
        sets = audit.surroundings.sets()
        large = large_number("Near duplicates", number(len(sets)), None, ["sets of examples"])
    about = "from labels and model outputs, without training; these are suspects: look before you delete"
    return opening(
        "holdfast audit of arrays", "outputs of a model", name, [about], hero(large, findings(*sentences(audit)))
    )


def _wrong_labels(audit: ArrayAudit, quality: LabelQuality) -> Html:
    shown, rare = quality.order[:_ROWS].tolist(), audit.in_groups
    rows = [
        sortable_row(
            f"row {position}",
            (
                (audit.class_names[audit.labels[position]], audit.class_names[audit.labels[position]]),
                (audit.class_names[quality.suggested[position]], audit.class_names[quality.suggested[position]]),
                (f"{float(quality.confidence[position]):.3f}", float(quality.confidence[position])),
            ),
            flag=("in a group" if bool(rare[position]) else "likely wrong") if bool(quality.wrong[position]) else None,
        )
        for position in shown
    ]
    return section(
        "Labels that fit least",
        note(
            "By self-confidence, the probability of the given label. Flagged are those that confident learning takes "
            f"for errors. The first {number(len(shown))} are shown; all are in examples.csv."
        ),
        sortable(
            "Labels", "Labels by self-confidence", ("example", "label", "more likely", "self-confidence"), rows,
            rising="self-confidence", class_="groups",
        ),
        id_="labels",
    )  # fmt: skip


def _class_table(audit: ArrayAudit, quality: LabelQuality) -> Html:
    rows = []
    for label, name in enumerate(audit.class_names):
        own = audit.labels == label
        size, wrong = int(own.sum()), int(quality.wrong[own].sum())
        rather = quality.suggested[own & quality.wrong].bincount()
        most = audit.class_names[int(rather.argmax())] if wrong else DASH
        share = wrong / size if size else 0.0
        cells = ((number(size), size), (number(wrong), wrong), (percent(share), share), (most, most))
        rows.append((share, sortable_row(name, cells)))
    ordered = [row for _, row in sorted(rows, key=lambda pair: -pair[0])]
    columns = ("class", "examples", "likely wrong", "of the class", "most often rather")
    table = sortable("Classes", "Likely errors in each class", columns, ordered, rising=None, class_="groups")
    return section("By class", table, id_="classes")


def _groups(audit: ArrayAudit) -> Html:
    assert audit.partition is not None
    rows = [_cluster_row(audit, one) for one in rank(audit.clusters)[:_ROWS]]
    columns = ("cluster", "examples", "of class", "silhouette", "taken for", "how often", "what it may be")
    return section(
        "Suspected groups",
        note(
            "Each class's examples, clustered by their probabilities. A cluster that is mostly taken for one other "
            "class shares something with it: a shortcut, or the class itself, where labels are wrong. A silhouette "
            "under .7 often marks a cluster that was split in two."
        ),
        sortable("Clusters", "Clusters, most suspicious first", columns, rows, rising=None, class_="groups clusters"),
        id_="groups",
    )


def _cluster_row(audit: ArrayAudit, one: Cluster) -> Html:
    assert audit.partition is not None
    separated = audit.partition.classes[one.label].silhouette
    value = None if separated is None else separated.value
    target = DASH if one.mistaken_for is None else audit.class_names[one.mistaken_for]
    look = audit.look(one)
    verdict = DASH if not one.stands_out else "not told: give features" if look is None else (
        "a group" if look.verdict == "ok" else "wrong labels"
    )  # fmt: skip
    if one.stands_out and look is None and audit.looks is not None:
        verdict = "too few to tell"
    return sortable_row(
        f"{audit.class_names[one.label]}, cluster {one.cluster}",
        (
            (number(one.size), one.size),
            (percent(one.share), one.share),
            (DASH if value is None else f"{value:.2f}", value),
            (target, target),
            (percent(one.mistaken), one.mistaken),
            (verdict, verdict),
        ),
        flag="stands out" if one.stands_out else None,
        class_="worst" if one.stands_out else None,
    )


def _duplicates(audit: ArrayAudit, lies: Surroundings) -> Html:
    sets = lies.sets()
    # Those with several labels are worth most: at least one of them is wrong.
    ordered = sorted(range(len(sets)), key=lambda place: (len(_classes_of(audit, sets[place])) == 1, place))
    rows = []
    for place in ordered[:_ROWS]:
        members = sets[place].tolist()
        classes = _classes_of(audit, sets[place])
        more = f" and {number(len(members) - _MEMBERS)} more" if len(members) > _MEMBERS else ""
        listed = ", ".join(map(str, members[:_MEMBERS])) + more
        copies = int(lies.exact[sets[place]].sum())
        cells = (
            (number(len(members)), len(members)),
            (number(copies), copies),
            (", ".join(classes), len(classes)),
            (listed, members[0]),
        )
        rows.append(sortable_row(f"set {place}", cells, flag="several labels" if len(classes) > 1 else None))
    table = sortable(
        "Duplicates", "Sets of near duplicates", ("set", "examples", "exact copies", "labels", "rows"), rows,
        rising=None, class_="groups",
    )  # fmt: skip
    lead = note(
        "Examples within .13 of the usual distance to a nearest neighbour. In training and test set at once they make "
        "a test look better than it is."
    )
    return section("Near duplicates", lead, table if rows else tag("p", "There are none."), id_="duplicates")


def _classes_of(audit: ArrayAudit, rows: Tensor) -> list[str]:
    """The names of the labels of some examples."""
    return [audit.class_names[label] for label in torch.unique(audit.labels[rows]).tolist()]


def _outliers(audit: ArrayAudit, lies: Surroundings) -> Html:
    count = int(lies.outlier.sum())
    order = lies.distance.argsort(descending=True, stable=True)[: min(_ROWS, max(count, 10))].tolist()
    rows = [
        sortable_row(
            f"row {position}",
            (
                (audit.class_names[audit.labels[position]], audit.class_names[audit.labels[position]]),
                (times(float(lies.distance[position])), float(lies.distance[position])),
            ),
            flag="outlier" if bool(lies.outlier[position]) else None,
        )
        for position in order
    ]
    return section(
        "Outliers",
        note(
            "Mean distance to the nearest neighbours, in multiples of the median example's. Flagged is what lies more "
            "than three interquartile ranges above the upper quartile, on a logarithmic scale."
        ),
        sortable(
            "Outliers", "Examples far from others", ("example", "label", "distance"), rows, rising=None, class_="groups"
        ),
        id_="outliers",
    )
