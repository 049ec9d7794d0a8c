"""`holdfast audit poison`: train on data that isn't trusted, and see what EPIC finds isolated on the way."""

from __future__ import annotations

import csv
import io
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast import training
from holdfast.cli.commands.audit.subject import Subject, parse_audit, subject_of_data, whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.model_options import ModelArguments, model_names, show_model
from holdfast.cli.common.options import DEFAULT_DATA
from holdfast.cli.common.progress import TrainingProgress
from holdfast.cli.common.tables import plain_table
from holdfast.data.catalog import DATASETS
from holdfast.errors import HoldfastWarning, counted
from holdfast.files import write_atomically
from holdfast.poisoning.isolation import Proxy
from holdfast.provenance import machine
from holdfast.report.html.markup import DASH, number, percent

if TYPE_CHECKING:
    from holdfast.auditing.suspects import Accused
    from holdfast.data import Examples
    from holdfast.poisoning.suspects import Suspect

PROGRAM = "holdfast audit poison"
_PREAMBLE = """Train on data that isn't trusted, drop what EPIC finds isolated, and show it to a person.

Trains the data set's recipe. Every few epochs the gradients of each class are clustered; examples that stand alone are
dropped, as poisons do before they take effect. Clean but odd examples stand alone too: open audit.html in a browser and
judge. Beside it are suspects.csv, by example id, and epic.parquet, the log.

A second opinion comes from cross-validation: models that were not trained on an example say how probable its label is.
For each suspect the page says which of the two checks flags it, and whether it lies in a small cluster of its class,
where it is more likely to belong to a rare group than to be a poison.

Data sets: {data}; or your own data, with the options of `holdfast fit`: a table, texts, images, arrays.

Models: {models}.

Name the data set first to see its own options too, as in `holdfast audit poison --data cifar10 --help`.

Examples: `holdfast audit poison`; `holdfast audit poison --data photos/ --epochs 40 --start 10 --fraction 0.1`;
`holdfast audit poison --parts 0` (without the second opinion, in a fifth of the time)."""
_MOST_ROWS = 20


@dataclass(frozen=True)
class Poison:
    """What to audit, how, and where to write.

    Attributes:
        data: a data set's name, or your own data: a file, a folder, or hf:NAME; coloured-digits by default.
        model: a model's name, my_package.module:Net, hf:NAME or timm:NAME; the data set's recipe names one.
        model_args: arguments of the model's own, as in hidden=64 'widths=[32, 16]'.
        head: name of the model's last linear layer, where it can't be found.
        epochs: to train, by the recipe where omitted.
        batch_size: examples per mini-batch, by the recipe where omitted.
        learning_rate: by the recipe where omitted.
        fraction: of the examples that are medoids; more of them isolate more.
        start: epochs before the first round; a quarter of the training by default.
        every: epochs between rounds.
        proxy: what stands for a gradient.
        pool: medoids of all examples, or of the remaining ones, which drops far more.
        parts: of the cross-validation; 0 does without it.
        early: epochs of plain training after which clusters are looked for.
        seed: names every random stream.
        device: where to train; auto for CUDA or MPS where there is some.
        threads: CPU threads of torch, by the recipe where omitted; small models are fastest with 1.
        out: where the page goes; audits/DATA-poison-sSEED by default.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """

    data: str | None = None
    model: str | None = None
    model_args: ModelArguments = field(default_factory=dict)
    head: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    fraction: float = 0.1
    start: int | None = None
    every: int = 1
    proxy: Proxy = "logits"
    pool: Literal["all", "remaining"] = "all"
    parts: int = 5
    early: int = 2
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    out: Path | None = None
    data_root: Path | None = None


def audit_poison(arguments: list[str]) -> None:
    """Train with EPIC, write the page and the files beside it, and show the suspects.

    Args:
        arguments: as typed.
    """
    import torch

    from holdfast.cli.common.notes import show_notes
    from holdfast.poisoning import Epic
    from holdfast.poisoning.suspects import suspects
    from holdfast.primitives.threads import torch_threads
    from holdfast.report.pages.audit_poison import second_sentences, write_suspects

    (options, subject), console = parse_poison(arguments), Console()
    settings = subject.settings
    out = options.out or free_place("audits", f"{subject.name}-poison-s{settings.seed}")
    start = options.start if options.start is not None else max(1, settings.epochs // 4)
    epic = Epic(fraction=options.fraction, start=start, every=options.every, proxy=options.proxy, pool=options.pool)
    method = training.validated(epic, settings.planned)
    with whole_folder(out) as folder, torch_threads(settings.threads or None):
        splits = subject.data.load(subject.data_root)
        show_notes(splits.notes, splits.name, console)
        train = splits.train
        spec = subject.spec(train)
        model = spec.build(subject.data_root)
        few = train.inputs.gather(torch.arange(min(2, len(train))))
        show_model(spec, model, few, console, needed_by="epic" if epic.needs_head else None)
        with TrainingProgress(f"{subject.name}, epic", console) as progress:
            result = training.fit(model, splits, method, settings, listeners=[progress], head=subject.head)
        isolated = suspects(epic.drops, train)
        epic.save_artifacts(folder)
        second = _second_opinion(options, subject, isolated, train, console) if options.parts else None
        write_atomically(folder / "suspects.csv", suspects_csv(isolated, train, second).encode())
        write_suspects(
            folder / "audit.html",
            epic.drops,
            isolated,
            train,
            second=second,
            name=subject.name,
            about=f"{subject.model}, {counted(settings.epochs, 'epoch')}, EPIC with {options.fraction:.0%} medoids",
            facts={
                "command": shlex.join([*PROGRAM.split(), *arguments]),
                "examples": number(len(train)),
                "test accuracy": percent(result.test_last.accuracy),
                "first round": f"after {counted(start, 'epoch')}, then every {options.every}",
                "second opinion": f"{options.parts} parts" if options.parts else "none (--parts 0)",
                "seed": settings.seed,
                **machine(),
            },
        )
    console.print(suspects_table(isolated, train, subject.name, second))
    caution = " Odd but clean examples are among them: look before you delete." if isolated else ""
    console.print(
        f"{number(len(isolated))} of {number(len(train))} examples were isolated and dropped; test accuracy "
        f"{percent(result.test_last.accuracy)}.{caution}",
        highlight=False,
    )
    if second is not None:
        for sentence in second_sentences(second):
            console.print(sentence, highlight=False)
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def _second_opinion(
    options: Poison, subject: Subject, isolated: Sequence[Suspect], train: Examples, console: Console
) -> list[Accused]:
    """What cross-validation and the clusters of a young network say of the suspects, and whom else they accuse."""
    from holdfast.auditing.cross_validation import out_of_sample
    from holdfast.auditing.own_look import looks_of
    from holdfast.auditing.suspects import accused, small_clusters
    from holdfast.auditing.wrong_labels import label_quality
    from holdfast.spurious.group_inference.discovery import discover

    spec, root = subject.spec(train), subject.data_root
    with TrainingProgress(f"{subject.name}, cross-validation", console) as progress:
        probabilities = out_of_sample(
            lambda: spec.build(root),
            train,
            subject.settings,
            parts=options.parts,
            listeners=[progress],
            head=subject.head,
        )
    with warnings.catch_warnings(), TrainingProgress(f"{subject.name}, first epochs", console) as progress:
        warnings.simplefilter("ignore", HoldfastWarning)  # what is not separated marks nobody
        (groups,) = discover(
            spec.build(root), train, subject.settings, epochs=(options.early,), listeners=[progress], head=subject.head
        )
    minority = small_clusters(groups, looks_of(train), train.class_names)
    return accused(isolated, label_quality(probabilities, train.labels), minority, train)


def suspects_csv(isolated: Sequence[Suspect], train: Examples, second: Sequence[Accused] | None = None) -> str:
    """A line per suspect: the earliest first, or, with a second opinion, the one whose label fits least."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    names = train.class_names
    first = ("id", "class", "class_name", "epoch", "cluster_size", "loss", "taken_for")

    def of(one: Suspect | None) -> tuple[object, ...]:
        return ("", "", "", "") if one is None else (one.epoch, one.size, one.loss, names[one.predicted])

    if second is None:
        lines.writerow(first)
        lines.writerows((one.id, one.label, names[one.label], *of(one)) for one in isolated)
        return text.getvalue()
    lines.writerow((*first, "flagged_by", "self_confidence", "more_likely", "in_small_cluster"))
    for one in second:
        own = (one.speaks, f"{one.confidence:.6g}", names[one.rather], int(one.minority))
        lines.writerow((one.id, one.label, names[one.label], *of(one.isolated), *own))
    return text.getvalue()


def suspects_table(
    isolated: Sequence[Suspect], train: Examples, title: str, second: Sequence[Accused] | None = None
) -> Table:
    """The suspects for a terminal."""
    count, names = len(isolated if second is None else second), train.class_names
    hidden = count - _MOST_ROWS
    more = f"and {number(hidden)} more in suspects.csv" if hidden > 0 else None
    if second is None:
        columns: tuple[str, ...] = ("id", "class", "epoch", "loss", "taken for")
        order = "isolated examples, earliest first"
    else:
        columns = ("id", "class", "self-confidence", "more likely", "flagged by", "epoch", "small cluster")
        order = "suspects, the label that fits least first"
    numbers = ("id", "epoch", "loss", "self-confidence")
    table = plain_table(
        f"{title}: {order}",
        columns,
        right=tuple(name for name in columns if name in numbers),
        caption=more,
        caption_justify="left",
    )
    if second is None:
        for one in isolated[:_MOST_ROWS]:
            own = (str(one.epoch), f"{one.loss:.2f}", escape(names[one.predicted]))
            table.add_row(str(one.id), escape(names[one.label]), *own)
        return table
    for each in second[:_MOST_ROWS]:
        table.add_row(
            str(each.id),
            escape(names[each.label]),
            f"{each.confidence:.3f}",
            escape(names[each.rather]),
            each.speaks,
            DASH if each.isolated is None else str(each.isolated.epoch),
            "yes" if each.minority else "",
        )
    return table


def parse_poison(arguments: Sequence[str]) -> tuple[Poison, Subject]:
    """Options of `audit poison`; the fields of the chosen data set are options too.

    Raises:
        ConfigError: if a data set is unknown.
    """
    about = _PREAMBLE.format(data=", ".join(DATASETS), models=model_names())
    options, name, data = parse_audit(Poison, arguments, DATASETS, DEFAULT_DATA, program=PROGRAM, about=about)
    taken = (
        "model",
        "model_args",
        "head",
        "data_root",
        "epochs",
        "batch_size",
        "learning_rate",
        "threads",
        "seed",
        "device",
    )
    given = {option: getattr(options, option) for option in taken}
    return options, subject_of_data(Path(name).name, data, **given)
