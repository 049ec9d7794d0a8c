"""`holdfast evaluate`: any metric by group, of predictions in a table, anybody's, or of a run's model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from holdfast.cli.common.scoring import Part, ScoringRequest, own_data_of, scored
from holdfast.cli.common.trained import file_name
from holdfast.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.data.own.source import Source
    from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics
    from holdfast.training.evaluation.by_group.predictions import JudgedTable, PredictionColumns

_Words = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]

#: Groups from which on a bootstrap makes fewer draws, and how many.
_MANY_GROUPS, _FEWER_DRAWS = 200, 200
#: Characters of a terminal that the names of groups and a metric take.
_NAMES_WIDTH, _COLUMN_WIDTH = 26, 13
#: Combinations of attributes from which on they are not crossed.
_MOST_COMBINATIONS = 20_000


@dataclass(frozen=True)
class Evaluate:
    """Evaluate predictions by group: any metric, several attributes, with intervals, gaps and calibration.

    PREDICTIONS is a table of anybody's predictions (csv, parquet, arrow, jsonl), a row per example; or a RUN directory,
    whose model predicts first, its own test set or DATA. Writes a page, and beside it a table with a row per group and
    metric.

    Examples: `holdfast evaluate guesses.csv --label y --predicted p --group sex --group age:4`; `holdfast evaluate
    scores.parquet --label y --probability p1 --group sex --metric recall --metric auroc`; `holdfast evaluate scores.csv
    --label y --probability 'p_*' --group region`; `holdfast evaluate prices.csv --label price --predicted guess --group
    town --task regression`; `holdfast evaluate runs/mine`; `holdfast evaluate runs/mine new.csv --group ward`.

    Attributes:
        predictions: a table of predictions, or a run directory of `holdfast fit` or `holdfast federate`.
        data: of a run: other data to predict; its own data by default.
        label: the column with the true class or quantity.
        predicted: the column with the predicted one; the most likely class by the probabilities where omitted.
        probability: the column with the probability of the positive class; or CLASS=COLUMN for each class; or a pattern
            such as 'p_*', whose star is the class.
        group: a column to group by, and again for more; age:4 cuts numbers at their quantiles, tags:list splits words
            at semicolons. Of a run: `group`, `client`, or a column of its data.
        metric: what to measure; the first one decides which group is worst. By default all that the columns allow.
        task: what is predicted; by default regression where true values are fractions.
        positive: of two classes the one that is looked for; the last by default.
        weight: the column with the weight of each row.
        show: a column to show of the worst group's mistakes, such as a file's name or a text, and again for more.
        depth: groups are made by up to so many attributes together.
        draws: of the bootstrap, for intervals of metrics that are not shares; 1000 by default, 200 with many groups.
        seed: decides the draws.
        out: the page; PREDICTIONS-by-group.html by default, or evaluation-DATA-PART.html in the run directory.
        table: the table, .parquet or .csv; beside the page by default.
        overwrite: replace files that are there.
        part: of a run: which part of the data.
        client: of a federation: this client's personal model; `all` for each example's own.
        method: whose personal models, where the federation has several.
        batch_size: of a run: examples per forward pass.
        device: of a run: where to compute; auto takes CUDA, else MPS, else the CPU.
        best_so_far: of a run that is not finished, take the best epoch so far.
        data_root: of a run: where data sets live; as it was started by default.
    """

    predictions: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PREDICTIONS|RUN")]
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    label: str | None = None
    predicted: str | None = None
    probability: _Words = ()
    group: _Words = ()
    metric: _Words = ()
    task: Literal["classes", "regression"] | None = None
    positive: str | None = None
    weight: str | None = None
    show: _Words = ()
    depth: int = 2
    draws: int | None = None
    seed: int = 0
    out: Path | None = None
    table: Path | None = None
    overwrite: bool = False
    part: Part = "test"
    client: str | None = None
    method: str | None = None
    batch_size: int = 512
    device: str = "cpu"
    best_so_far: bool = False
    data_root: Path | None = None


@dataclass(frozen=True)
class _Subject:
    """What is judged.

    Attributes:
        name: of the predictions.
        by: whose they are, in a clause.
        source: the table.
        columns: which column says what.
        show: columns to show of mistakes.
        notes: what a reader must know.
    """

    name: str
    by: str
    source: Source
    columns: PredictionColumns
    show: tuple[str, ...]
    notes: tuple[str, ...] = ()


def evaluate(options: Evaluate, console: Console, command: str = "") -> None:
    """Judge as `options` say, write the page and the table, and show how groups fare.

    Args:
        options: what was asked for.
        console: where to show.
        command: what was typed, for the page.
    """
    from holdfast.report.pages.evaluation import write_evaluation
    from holdfast.training.evaluation.by_group.predictions import judged_table
    from holdfast.training.prediction_table import write_table

    is_run = (Path(options.predictions) / "config.yaml").exists() or _is_node(options.predictions)
    _check(options, is_run=is_run)
    page, table = _places(options, is_run=is_run)
    subject = _of_run(options) if is_run else _of_table(options)
    judged = judged_table(subject.source, subject.columns)
    report, notes = _report(options, judged)
    examples = _mistakes(report, subject)
    about = _about(subject, report, (*subject.notes, *judged.notes, *notes), command)
    write_table(report.to_arrow(), table)
    write_evaluation(page, report, about, examples)
    for family in report.families:
        if len(family) == 1:
            fitting = max(2, (console.width - _NAMES_WIDTH) // _COLUMN_WIDTH)
            console.print(report.table(*family, title=f"{subject.name} by {family[0]}", most=fitting))
    for sentence in about.notes:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)
    console.print(f"Page: [bold]{page}[/], table: [bold]{table}[/]", highlight=False, soft_wrap=True)


def _check(options: Evaluate, *, is_run: bool) -> None:
    """Refuse what can't be asked for before anything is read."""
    needless: dict[str, Any]
    if is_run:
        what = "is for tables of predictions; a run knows its labels and what it predicts"
        needless = {
            "--label": options.label, "--predicted": options.predicted, "--probability": options.probability or None,
            "--task": options.task,
        }  # fmt: skip
    else:
        what = f"is for the model of a run, and {options.predictions} is no run directory; leave it out"
        needless = {
            "DATA": options.data, "--client": options.client, "--method": options.method,
            "--data-root": options.data_root, "--best-so-far": options.best_so_far or None,
            "--part": None if options.part == "test" else options.part,
        }  # fmt: skip
    if given := [name for name, value in needless.items() if value is not None]:
        raise ConfigError(f"{given[0]} {what}")
    if options.depth < 1:
        raise ConfigError(f"--depth is {options.depth}; give 1 for single attributes, 2 for pairs of them")
    if options.draws is not None and options.draws < 0:
        raise ConfigError(f"--draws is {options.draws}; give 0 for no bootstrap, or some hundreds")
    if twice := [name for place, name in enumerate(options.group) if name in options.group[:place]]:
        raise ConfigError(f"--group {twice[0]} is given twice; leave one out")


def _is_node(path: str) -> bool:
    from holdfast.cli.common.node_models import node_state

    return Path(path).is_dir() and node_state(Path(path)) is not None


def _places(options: Evaluate, *, is_run: bool) -> tuple[Path, Path]:
    """Where the page and the table go, which must be free."""
    from holdfast.training.prediction_table import check_file_place, check_table_place

    subject = Path(options.predictions)
    if is_run:
        asked = file_name("evaluation", Path(options.data or "").name, options.part, options.client, options.method)
        page = options.out or subject / f"{asked}.html"
    else:
        page = options.out or subject.with_name(f"{subject.name.partition('.')[0]}-by-group.html")
    if page.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{page} ends in {page.suffix or 'nothing'}; the page is written as .html")
    table = options.table or page.with_suffix(".parquet")
    check_table_place(table, overwrite=options.overwrite, option="--table")
    check_file_place(page, overwrite=options.overwrite)
    return page, table


# ---------------------------------------------------------------------------------------------------------- subjects


def _of_table(options: Evaluate) -> _Subject:
    """Predictions that lie in a table."""
    from holdfast.data.own.places import read_place
    from holdfast.data.own.words import some
    from holdfast.training.evaluation.by_group.predictions import PredictionColumns

    if options.label is None:
        raise ConfigError("say which column has the true classes or quantities: --label COLUMN")
    source = read_place(options.predictions)
    if source.inputs is not None:
        raise ConfigError(f"{options.predictions} has arrays; save the predictions as a table, csv or parquet")
    if not options.group:
        raise ConfigError(f"say by which columns: --group COLUMN; there are {some(source.columns, 12)}")
    columns = PredictionColumns(
        options.label, options.predicted, options.probability, options.group, options.weight, options.positive,
        options.task,
    )  # fmt: skip
    said = " and ".join(filter(None, [options.predicted, ", ".join(options.probability)]))
    return _Subject(
        Path(options.predictions).name, f"{said} against {options.label}", source, columns, options.show, source.notes
    )


def _of_run(options: Evaluate) -> _Subject:
    """Predictions that the model of a run makes now."""
    from holdfast.data.own.columns import understood
    from holdfast.data.own.source import Source
    from holdfast.models.devices import find_device
    from holdfast.training.evaluation.by_group.predictions import PredictionColumns
    from holdfast.training.prediction_table import COLUMNS, prediction_table

    request = ScoringRequest(
        Path(options.predictions), options.data, options.part, options.client, options.method, options.batch_size,
        options.device, best_so_far=options.best_so_far, data_root=options.data_root,
    )  # fmt: skip
    request.check()
    sources, device = request.sources(), find_device(options.device)
    scores, data, class_names = scored(sources, request, device)
    if not data.labelled:
        raise ConfigError(f"{sources.name} has no labels to judge by; `holdfast predict` writes predictions without")
    table = understood(prediction_table(scores, data, class_names), trusted=True)
    place = own_data_of(request)
    known = set(table.column_names)
    wanted = [
        name for name in (*options.group, *options.show, options.weight) if name is not None and name not in known
    ]
    if wanted and place is not None:
        table = _with_columns(table, place, wanted)
    groups = options.group or tuple(name for name in ("group", "client") if name in known)
    notes: tuple[str, ...] = ()
    if not groups:
        groups, notes = ("label",), ("No groups are known: classes stand in for them.",)
    probability = ("p_*",) if len(class_names) <= COLUMNS and f"p_{class_names[0]}" in known else ()
    columns = PredictionColumns(
        "label", "predicted", probability, groups, options.weight, options.positive, "classes"
    )  # fmt: skip
    show = options.show or (("name",) if "name" in known else ())
    whose = f", model of {options.client}" if options.client else ""
    return _Subject(
        sources.name, f"{sources.folder.name}{whose}, {options.part} part" if options.data is None else
        f"{sources.folder.name}{whose}", Source(sources.name, table), columns, show, notes,
    )  # fmt: skip


def _with_columns(table: Any, place: str, wanted: list[str]) -> Any:
    """The predictions with columns of the data that they are of, joined by the number of the row."""
    from holdfast.data.own.places import read_place

    source = read_place(place)
    rows = table["id"]
    for asked in wanted:
        name = asked if asked in source.columns else asked.rpartition(":")[0] or asked
        if name in table.column_names:
            continue
        if name not in source.columns:
            raise DataError(f"{place} has no column {asked!r}{nearest(asked, [*source.columns, 'group', 'client'])}")
        table = table.append_column(name, source.table[name].take(rows))
    return table


# ----------------------------------------------------------------------------------------------------------- report


def _report(options: Evaluate, judged: JudgedTable) -> tuple[GroupMetrics, list[str]]:
    """The report, and what was done because there are very many groups."""
    from itertools import combinations
    from math import prod

    from holdfast.training.evaluation.by_group.group_metrics import GroupMetrics

    levels = [len(attribute.levels) for attribute in judged.groups.values()]
    notes, depth = [], min(options.depth, len(levels))
    while depth > 1 and any(prod(chosen) > _MOST_COMBINATIONS for chosen in combinations(levels, depth)):
        depth -= 1
    if depth < min(options.depth, len(levels)):
        notes.append(
            f"Attributes are not taken {min(options.depth, len(levels))} together, which would make more than "
            f"{_MOST_COMBINATIONS:,} groups; cut them into fewer values first."
        )
    many = sum(levels) > _MANY_GROUPS
    draws = (_FEWER_DRAWS if many else 1000) if options.draws is None else options.draws
    report = GroupMetrics.of(
        judged.judged, judged.groups, options.metric, depth=depth, draws=draws, seed=options.seed
    )  # fmt: skip
    return report, notes


def _mistakes(report: GroupMetrics, subject: _Subject) -> Any:
    """Mistakes of the worst group, with what the named columns say of them; None where no column is named."""
    from holdfast.report.pages.evaluation import ShownExamples, worst_mistakes
    from holdfast.training.evaluation.by_group.predictions import shown_rows

    if not subject.show:
        return None
    rows = worst_mistakes(report).tolist()
    return ShownExamples(rows, subject.show, shown_rows(subject.source, rows, subject.show))


def _about(subject: _Subject, report: GroupMetrics, notes: tuple[str, ...], command: str) -> Any:
    from holdfast.provenance import machine
    from holdfast.report.pages.evaluation import AboutPredictions

    judged, columns = report.judged, subject.columns
    facts = {
        "predictions": subject.source.place,
        "examples": f"{len(judged):,}",
        "task": "classes" if judged.task == "classes" else "regression",
        "classes": ", ".join(judged.class_names[:12]) + (", ..." if len(judged.class_names) > 12 else "") or None,
        "grouped by": ", ".join(columns.groups),
        "weights": columns.weight,
        **machine(),
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    return AboutPredictions(subject.name, subject.by, notes, facts, command)


def main(arguments: list[str]) -> int:
    """Run the command."""
    from rich.console import Console

    options = tyro.cli(Evaluate, args=arguments, prog="holdfast evaluate")
    command = shlex.join(["holdfast", "evaluate", *arguments])
    evaluate(options, Console(), command)
    return 0
