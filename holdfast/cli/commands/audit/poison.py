"""`holdfast audit poison`: train on data that isn't trusted, and see what EPIC finds isolated on the way."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.cli.commands.audit.subject import Subject, subject_of_data, whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.options import DEFAULT_DATA, named_data
from holdfast.cli.common.progress import TrainingProgress
from holdfast.data import DATASETS, Examples
from holdfast.files import write_atomically
from holdfast.models import MODELS, build
from holdfast.poisoning import Epic
from holdfast.poisoning.isolation import Proxy
from holdfast.poisoning.suspects import Suspect, suspects
from holdfast.primitives.threads import torch_threads
from holdfast.provenance import machine
from holdfast.report.html.markup import counted, number, percent
from holdfast.report.pages.audit_poison import write_suspects
from holdfast.training import fit

PROGRAM = "holdfast audit poison"
_PREAMBLE = """Train on data that isn't trusted, drop what EPIC finds isolated, and show it to a person.

Trains the data set's recipe. Every few epochs the gradients of each class are clustered; examples that stand alone are
dropped, as poisons do before they take effect. Clean but odd examples stand alone too: open audit.html in a browser and
judge. Beside it are suspects.csv, by example id, and epic.parquet, the log.

Data sets: {data}; or a folder with images and a metadata.csv.

Models: {models}.

Name the data set first to see its own options too, as in `holdfast audit poison --data cifar10 --help`.

Examples: `holdfast audit poison`; `holdfast audit poison --data photos/ --epochs 40 --start 10 --fraction 0.1`."""
_MOST_ROWS = 20


@dataclass(frozen=True)
class Poison:
    """What to audit, how, and where to write.

    Attributes:
        data: a data set's name, or a folder with images and a metadata.csv; coloured-digits by default.
        model: a model's name; the data set's recipe names one.
        epochs: to train, by the recipe where omitted.
        batch_size: examples per mini-batch, by the recipe where omitted.
        learning_rate: by the recipe where omitted.
        fraction: of the examples that are medoids; more of them isolate more.
        start: epochs before the first round; a quarter of the training by default.
        every: epochs between rounds.
        proxy: what stands for a gradient.
        pool: medoids of all examples, or of the remaining ones, which drops far more.
        seed: names every random stream.
        device: where to train.
        threads: CPU threads of torch, by the recipe where omitted; small models are fastest with 1.
        out: where the page goes; audits/DATA-poison-sSEED by default.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """

    data: str | None = None
    model: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    fraction: float = 0.1
    start: int | None = None
    every: int = 1
    proxy: Proxy = "logits"
    pool: Literal["all", "remaining"] = "all"
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    out: Path | None = None
    data_root: Path | None = None


def audit_poison(arguments: list[str]) -> None:
    """The examples whose gradients stand alone while a network learns: are they poisons?"""
    poison(*parse_poison(arguments), arguments)


def poison(asked: Poison, subject: Subject, typed: Sequence[str]) -> None:
    """Train with EPIC, write the page and the files beside it, and show the suspects.

    Args:
        asked: how to look, and where to write.
        subject: what is audited.
        typed: the arguments, for the record.
    """
    console, settings = Console(), subject.settings
    out = asked.out or free_place("audits", f"{subject.name}-poison-s{settings.seed}")
    start = asked.start if asked.start is not None else max(1, settings.epochs // 4)
    epic = Epic(fraction=asked.fraction, start=start, every=asked.every, proxy=asked.proxy, pool=asked.pool)
    epic.validate(settings.planned)
    with whole_folder(out) as folder, torch_threads(settings.threads or None):
        splits = subject.data.load(subject.data_root)
        train = splits.train
        model = build(
            subject.model,
            train.input_shape,
            train.n_classes,
            seed=settings.seed,
            weights=subject.start,
            root=subject.data_root,
        )
        with TrainingProgress(f"{subject.name}, epic", console) as progress:
            result = fit(model, splits, epic, settings, listeners=[progress])
        found = suspects(epic.drops, train)
        epic.save_artifacts(folder)
        write_atomically(folder / "suspects.csv", suspects_csv(found, train).encode())
        write_suspects(
            folder / "audit.html",
            epic.drops,
            found,
            train,
            name=subject.name,
            about=f"{subject.model}, {counted(settings.epochs, 'epoch')}, EPIC with {asked.fraction:.0%} medoids",
            facts={
                "command": shlex.join([*PROGRAM.split(), *typed]),
                "examples": number(len(train)),
                "test accuracy": percent(result.test_last.accuracy),
                "first round": f"after {counted(start, 'epoch')}, then every {asked.every}",
                "seed": settings.seed,
                **machine(),
            },
        )
    console.print(suspects_table(found, train, subject.name))
    console.print(
        f"{number(len(found))} of {number(len(train))} examples were isolated and dropped; test accuracy "
        f"{percent(result.test_last.accuracy)}. Odd but clean examples are among them: look before you delete.",
        highlight=False,
    )
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def suspects_csv(found: Sequence[Suspect], train: Examples) -> str:
    """A line per suspect, the most suspicious first."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("id", "class", "class_name", "epoch", "cluster_size", "loss", "taken_for"))
    for one in found:
        names = train.class_names
        lines.writerow((one.id, one.label, names[one.label], one.epoch, one.size, one.loss, names[one.predicted]))
    return text.getvalue()


def suspects_table(found: Sequence[Suspect], train: Examples, title: str) -> Table:
    """The suspects for a terminal."""
    hidden = len(found) - _MOST_ROWS
    table = Table(
        title=f"{escape(title)}: isolated examples, earliest first",
        title_justify="left",
        caption=f"and {number(hidden)} more in suspects.csv" if hidden > 0 else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for column in ("id", "class", "epoch", "loss", "taken for"):
        table.add_column(column, justify="left" if column in ("class", "taken for") else "right")
    for one in found[:_MOST_ROWS]:
        names = train.class_names
        table.add_row(
            str(one.id), escape(names[one.label]), str(one.epoch), f"{one.loss:.2f}", escape(names[one.predicted])
        )
    return table


def parse_poison(arguments: Sequence[str]) -> tuple[Poison, Subject]:
    """Options of `audit poison`; the fields of the chosen data set are options too.

    Raises:
        ConfigError: if a data set is unknown.
    """
    about = _PREAMBLE.format(data=", ".join(DATASETS), models=", ".join(sorted(MODELS)))
    first, _ = tyro.cli(Poison, args=arguments, prog=PROGRAM, add_help=False, return_unknown_args=True)
    data = first.data or DEFAULT_DATA
    data_class, folder = named_data(data)
    own = field() if folder is None else field(default=data_class(path=folder))  # type: ignore[call-arg]
    parts: list[tuple[str, Any, Any]] = [
        ("data", Annotated[data_class, tyro.conf.arg(name=data_class.name)], own),
        ("asked", Annotated[Poison, tyro.conf.arg(name="")], field(default=Poison())),
    ]
    parsed: Any = tyro.cli(make_dataclass("PoisonArguments", parts), args=arguments, prog=PROGRAM, description=about)
    taken = ("model", "data_root", "epochs", "batch_size", "learning_rate", "threads", "seed", "device")
    options = {option: getattr(parsed.asked, option) for option in taken}
    return parsed.asked, subject_of_data(Path(data).name, parsed.data, **options)
