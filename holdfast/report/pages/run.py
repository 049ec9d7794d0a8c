"""One self-contained page per run: `write_report` puts RUN/report.html there, for a finished run or an unfinished one.

The page begins with whether its numbers are to be trusted and with the worst group, and ends with how to repeat the
run; its accent colour means the worst group, and a result that failed, wherever it occurs. Nothing on it comes from
elsewhere, so it can be mailed, archived and opened in ten years.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from holdfast.data.examples import Splits
from holdfast.errors import counted
from holdfast.report.html.charts import accuracy_figure, active_figure, loss_figure, strip
from holdfast.report.html.choice import choice_banner
from holdfast.report.html.health import health_banner
from holdfast.report.html.images import example_sheet
from holdfast.report.html.markup import Html, duration, join, number, percent, tag
from holdfast.report.html.page import code, folded, headline, hero, large_number, note, section, write_page
from holdfast.report.html.tables import SLOTS, confusion_table, group_table, plan_table, timing_table
from holdfast.report.pages.choices import choices_section
from holdfast.report.pages.federation.page import write_federation_report
from holdfast.report.pages.run_examples import in_words
from holdfast.report.pages.run_parts import repeat_section, unfinished_banner
from holdfast.report.pages.run_record import RunRecord
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.run import Run, understanding

_AVERAGES = {
    "test mix": ("Average, {part} mix", "every example of the {part} set alike"),
    "train mix": ("Average, training mix", "groups weighted by their training counts"),
    "group mean": ("Group mean", "every group alike"),
}


def write_report(run: Run, splits: Splits | None = None) -> Path:
    """Write the run's page.

    Args:
        run: a run of `fit` or of a federation, finished or not.
        splits: the data set the run was on, for the images of examples; where it is not at hand, the page says so.

    Returns:
        Where the page is: ``report.html`` in the run's directory.

    Raises:
        DataError: if `splits` are not what the run was on.
        CheckpointError: if the page can't be written; an earlier one is left alone.
    """
    with understanding(run.path):
        return write_federation_report(run) if run.kind == "federation" else _write_report(run, splits)


def _write_report(run: Run, splits: Splits | None) -> Path:
    record = RunRecord.of(run)
    data = Path(record.data).name or (splits.name if splits else "") or "unnamed data"
    parts = [
        _headline(run, record, data),
        _groups(record),
        _over_time(record),
        _confusion(run, record, splits),
        _examples(run, record, splits),
        _trained_on(record),
        choices_section(record),
        _run_section(run, record),
    ]
    title = f"{data}, {record.method or 'training'}: {record.path.resolve().name}"
    return write_page(run.path / "report.html", title, *parts)


# ------------------------------------------------------------------------------------------------------- sections


def _headline(run: Run, record: RunRecord, data: str) -> Html:
    by = [
        piece
        for label, value in (("", record.method), ("with ", record.model), ("seed ", record.seed))
        if value not in ("", None)
        for piece in (", ", label, tag("b", str(value)))
    ][1:]
    report = record.report
    return headline(
        record.path,
        record.status,
        data,
        by,
        health_banner(record.health),
        choice_banner(record.choice),
        None if record.finished else _unfinished(run, record),
        None if report is None else hero(_worst_group(record, report), _numbers(record, report)),
    )


def _unfinished(run: Run, record: RunRecord) -> Html:
    of = f" of {number(record.epochs_planned)}" if record.epochs_planned else ""
    done = f"{len(record.epochs)}{of} epochs done"
    shown = (
        "and the numbers are those of the best epoch so far, on the validation set"
        if record.report
        else "and there are no numbers yet"
    )
    return unfinished_banner(run, f"{done}, {shown}", what="run", command="fit")


def _worst_group(record: RunRecord, report: GroupReport) -> Html:
    worst = report.worst
    what = "class" if report.grouping == "classes" else "group"
    right = f"{number(worst.correct)} of {number(worst.count)} right"
    interval = f"95% interval {percent(worst.low)} to {percent(worst.high)}"
    return large_number(
        f"Worst-{what} {record.part} accuracy",
        percent(worst.accuracy)[:-1],
        "%",
        [tag("b", worst.name), f", {right}, {interval}"],
        strip(report),
    )


def _numbers(record: RunRecord, report: GroupReport) -> Html:
    cards = []
    for name, value in report.averages.items():
        if value is not None:
            title, meaning = (text.format(part=record.part) for text in _AVERAGES[name])
            cards.append(_number(title, percent(value), None, meaning))
    if record.reference is not None:
        plain = record.reference
        what = "class" if plain.grouping == "classes" else "group"
        cards.append(
            _number(
                f"Plain training, worst {what}",
                percent(plain.worst_accuracy),
                None,
                f"the same data and settings without {record.method}; {percent(plain.accuracy)} of all",
            )
        )
    if record.best_epoch is not None:
        planned = record.epochs_planned or len(record.epochs)
        by = record.select_by.replace("_", " ")
        cards.append(
            _number(
                "Chosen epoch" if record.finished else "Best epoch so far",
                str(record.best_epoch + 1),
                f" of {number(planned)}",
                f"by {by} on the validation set" if by else "by its score on the validation set",
            )
        )
    if record.best_full_epochs is not None:
        cards.append(
            _number(
                "Full-epoch equivalents",
                number(record.best_full_epochs, 2),
                f" of {number(record.full_epochs, 2)}",
                "examples trained on until then, in passes over the whole training set",
            )
        )
    return tag("dl", *cards, class_="numbers")


def _number(title: str, value: str, of: str | None, meaning: str) -> Html:
    small = tag("small", of) if of else None
    return tag("div", tag("dt", title), tag("dd", value, small), tag("dd", meaning, class_="note"))


def _groups(record: RunRecord) -> Html | None:
    report = record.report
    if report is None:
        return None
    last = None
    if record.last is not None:
        last = note(
            f"With the weights after the last epoch instead: worst {percent(record.last.worst_accuracy)} "
            f"({record.last.worst.name}), test mix {percent(record.last.accuracy)}."
        )
    title = "How every class fares" if report.grouping == "classes" else "How every group fares"
    lead = note(f"On the {record.part} set, worst first. Click a header to sort by it.")
    return section(title, lead, group_table(report, record.part), *map(note, report.notes), last, id_="groups")


def _over_time(record: RunRecord) -> Html | None:
    if not record.epochs:
        return None
    figures = tag("div", accuracy_figure(record), loss_figure(record), class_="figures")
    return section("Over the epochs", figures, id_="time")


def _confusion(run: Run, record: RunRecord, splits: Splits | None) -> Html | None:
    report = record.report
    if report is None or report.folded is not None:
        return None
    truth = _true_classes(run, record, report, splits)
    framed = "The frame marks the true class. " if any(true is not None for true in truth) else ""
    table, what = confusion_table(report, truth), "class" if report.grouping == "classes" else "group"
    return section(
        "What each group was taken for" if report.grouping != "classes" else "What each class was taken for",
        table,
        note(framed, f"Predictions on the {record.part} set; darker means a larger share of the {what}'s examples."),
        id_="confusion",
    )


def _true_classes(run: Run, record: RunRecord, report: GroupReport, splits: Splits | None) -> list[int | None]:
    """The class of each group's examples, where they all have the same and it is known."""
    if report.grouping == "classes":
        return list(range(len(report.by_group)))
    unknown: list[int | None] = [None] * len(report.by_group)
    if report.grouping == "overlapping groups":
        return unknown
    if record.part == "test":
        columns = run.predictions()
        labels, groups = columns["label"], columns["group"]
    elif splits is not None and splits.validation.groups is not None:
        labels, groups = splits.validation.labels.numpy(), splits.validation.groups.numpy()
    else:
        return unknown
    low, high = np.full(len(unknown), np.iinfo(np.int64).max), np.full(len(unknown), -1)
    np.minimum.at(low, groups, labels)
    np.maximum.at(high, groups, labels)
    return [int(first) if first == last else None for first, last in zip(low, high, strict=True)]


def _examples(run: Run, record: RunRecord, splits: Splits | None) -> Html:
    if record.report is None or record.part != "test":
        shown = note("Example images are chosen by the test predictions, which are made when the run ends.")
        return section("Examples of the worst group", shown, id_="examples")
    what = "class" if record.report.grouping == "classes" else "group"
    title = f"Examples of the worst {what}"
    lead = tag("p", "From the test set: ", tag("b", record.report.worst.name), ".", class_="lead")
    return section(title, lead, _sheet(run, record.report, splits), id_="examples")


def _sheet(run: Run, report: GroupReport, splits: Splits | None) -> Html:
    if splits is not None:
        return example_sheet(report, run.predictions(), splits.test, lambda ids: in_words(run, splits, ids))
    return join(
        [
            note(
                "The data set was not available when this page was written, so its images can't be shown. "
                "Where it is, write the page again:"
            ),
            code(f"holdfast report {shlex.quote(str(run.path.resolve()))} --data-root DIR"),
            note("For data of your own, in Python: ", tag("code", "holdfast.report.write_report(run, splits)"), "."),
        ]
    )


def _trained_on(record: RunRecord) -> Html | None:
    plans = record.plans
    if not any(plan["slots"] or plan["active"] != plan["of"] for plan in plans):
        return None
    policies = " + ".join(plans[-1]["policies"])
    lead = f"As {policies} decided. "
    if len(plans) == 1:
        ways = "".join(f", {way}" for slot, way in SLOTS.items() if slot in plans[0]["slots"])
        active = f"{number(plans[0]['active'])} of {number(plans[0]['of'])} examples took part from the start on{ways}."
        return section("What was trained on", tag("p", lead, active, class_="lead"), id_="trained")
    changes = counted(len(plans) - 1, "change")
    where = f"{changes} of plan after the start; plans/ in the run's directory has each by example id."
    return section(
        "What was trained on",
        tag("p", lead, where, class_="lead"),
        active_figure(record),
        folded("Every change of plan", plan_table(record)),
        id_="trained",
    )


def _run_section(run: Run, record: RunRecord) -> Html:
    total = sum(record.seconds.values())
    timing = tag(
        "div",
        tag("h3", "Time ", tag("small", duration(total) if total else "none yet")),
        tag("div", timing_table(record), class_="timing") if record.seconds else None,
    )
    return repeat_section(run, timing, command="fit")
