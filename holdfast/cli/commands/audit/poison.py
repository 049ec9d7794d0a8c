"""`holdfast audit poison`: train on data that isn't trusted, and see what EPIC finds isolated on the way."""

from __future__ import annotations

import csv
import io
import shlex
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
from holdfast.files import write_atomically
from holdfast.poisoning.isolation import Proxy
from holdfast.provenance import machine
from holdfast.report.html.markup import counted, number, percent

if TYPE_CHECKING:
    from holdfast.data import Examples
    from holdfast.poisoning.suspects import Suspect

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
    from holdfast.report.pages.audit_poison import write_suspects

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
        write_atomically(folder / "suspects.csv", suspects_csv(isolated, train).encode())
        write_suspects(
            folder / "audit.html",
            epic.drops,
            isolated,
            train,
            name=subject.name,
            about=f"{subject.model}, {counted(settings.epochs, 'epoch')}, EPIC with {options.fraction:.0%} medoids",
            facts={
                "command": shlex.join([*PROGRAM.split(), *arguments]),
                "examples": number(len(train)),
                "test accuracy": percent(result.test_last.accuracy),
                "first round": f"after {counted(start, 'epoch')}, then every {options.every}",
                "seed": settings.seed,
                **machine(),
            },
        )
    console.print(suspects_table(isolated, train, subject.name))
    console.print(
        f"{number(len(isolated))} of {number(len(train))} examples were isolated and dropped; test accuracy "
        f"{percent(result.test_last.accuracy)}. Odd but clean examples are among them: look before you delete.",
        highlight=False,
    )
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def suspects_csv(isolated: Sequence[Suspect], train: Examples) -> str:
    """A line per suspect, the most suspicious first."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("id", "class", "class_name", "epoch", "cluster_size", "loss", "taken_for"))
    for one in isolated:
        names = train.class_names
        lines.writerow((one.id, one.label, names[one.label], one.epoch, one.size, one.loss, names[one.predicted]))
    return text.getvalue()


def suspects_table(isolated: Sequence[Suspect], train: Examples, title: str) -> Table:
    """The suspects for a terminal."""
    hidden = len(isolated) - _MOST_ROWS
    table = plain_table(
        f"{title}: isolated examples, earliest first",
        ("id", "class", "epoch", "loss", "taken for"),
        right=("id", "epoch", "loss"),
        caption=f"and {number(hidden)} more in suspects.csv" if hidden > 0 else None,
        caption_justify="left",
    )
    for one in isolated[:_MOST_ROWS]:
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
