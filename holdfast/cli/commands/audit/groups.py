"""`holdfast audit groups`: the clusters of an early network's outputs in each class, for a person to look at."""

from __future__ import annotations

import csv
import io
import shlex
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast import models, training
from holdfast.cli.commands.audit.subject import Subject, parse_audit, subject_of_data, whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.model_options import ModelArguments, model_names, show_model
from holdfast.cli.common.options import DEFAULT_DATA, parse
from holdfast.cli.common.progress import TrainingProgress
from holdfast.cli.common.tables import plain_table
from holdfast.cli.common.trained import chosen_model
from holdfast.data.catalog import DATASETS, data_root
from holdfast.errors import ConfigError, HoldfastWarning, counted
from holdfast.files import write_atomically
from holdfast.provenance import machine
from holdfast.report.html.markup import DASH, number, percent, times
from holdfast.spurious.group_inference.spare import Output

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import DataSet, Examples
    from holdfast.spurious.group_inference.discovery import GroupAudit
    from holdfast.training.health.check import Finding

_PREAMBLE = """Show the clusters of an early network's outputs in each class, so that a person can see the shortcut.

Trains the data set's recipe for a few epochs, clusters the outputs of each class as SPARE does, and writes a page with
the clusters, what they are taken for, and their members; no group labels are used. Open audit.html in a browser. Beside
it are clusters.csv, the partition by example id, and the early model.

Data sets: {data}; or your own data, with the options of `holdfast fit`: a table, texts, images, arrays.

Models: {models}.

Name the data set first to see its own options too, as in `holdfast audit groups --data cmnist5 --help`.

Examples: `holdfast audit groups`; `holdfast audit groups --data photos/ --attribute none --epochs 3`;
`holdfast audit groups --run runs/mine`; `holdfast audit groups --weights early.safetensors --output features`."""

_PROGRAM = "holdfast audit groups"
_MANY_CLASSES = 10
_MOST_ROWS = 30


@dataclass(frozen=True)
class Groups:
    """What to audit, how, and where to write.

    Attributes:
        data: a data set's name, or your own data: a file, a folder, or hf:NAME; coloured-digits by default.
        run: audit the chosen model of this run directory of `holdfast fit`, on its training set.
        weights: audit the weights in this file instead of training.
        model: a model's name, my_package.module:Net, hf:NAME or timm:NAME; the data set's recipe names one.
        model_args: arguments of the model's own, as in hidden=64 'widths=[32, 16]'.
        head: name of the model's last linear layer, where it can't be found.
        epochs: early epochs to train, 2 by default.
        batch_size: examples per mini-batch, by the recipe where omitted.
        learning_rate: by the recipe where omitted.
        output: what is clustered; `features` are the inputs of the last linear layer.
        k_max: try 2 to this many clusters in each class.
        seed: names every random stream; a run has its own.
        device: where to train; auto for CUDA or MPS where there is some.
        threads: CPU threads of torch, by the recipe where omitted; small models are fastest with 1.
        out: where the page goes; audits/DATA-groups-sSEED by default.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """

    data: str | None = None
    run: Path | None = None
    weights: Path | None = None
    model: str | None = None
    model_args: ModelArguments = field(default_factory=dict)
    head: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    output: Output = "softmax"
    k_max: int = 5
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    out: Path | None = None
    data_root: Path | None = None


def audit_groups(arguments: list[str]) -> None:
    """Write the page of an audit and the files beside it, and show the clusters.

    Args:
        arguments: as typed.
    """
    import torch
    from safetensors.torch import save

    from holdfast.cli.common.notes import show_notes
    from holdfast.primitives.threads import torch_threads
    from holdfast.report.pages.audit_groups import doubts, write_audit

    (options, subject), console = parse_groups(arguments), Console()
    out = options.out or free_place("audits", f"{subject.name}-groups-s{subject.settings.seed}")
    with whole_folder(out) as folder, torch_threads(subject.settings.threads or None):
        splits = subject.data.load(subject.data_root)
        show_notes(splits.notes, splits.name, console)
        train = splits.train
        model = _model(options, subject, train)
        few = train.inputs.gather(torch.arange(min(2, len(train))))
        needed_by = "--output features" if options.output == "features" else None
        show_model(subject.spec(train), model, few, console, needed_by=needed_by)
        audit = _look(options, subject, model, train, console)
        looks = _own_looks(audit, subject, model, train)
        about = _about(options, subject, audit)
        if audit.epoch is not None:
            weights = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
            write_atomically(folder / "early.safetensors", save(weights))
        audit.partition.save(folder / "partition")
        write_atomically(folder / "clusters.csv", clusters_csv(audit, train.class_names).encode())
        command = shlex.join([*_PROGRAM.split(), *arguments])
        write_audit(
            folder / "audit.html",
            audit,
            train,
            name=subject.name,
            about=about,
            facts={
                "command": command,
                "examples": number(len(train)),
                "clustered output": options.output,
                "clusters tried": f"2 to {options.k_max} in each class",
                "seed": subject.settings.seed,
                **machine(),
            },
            commands=_next(options, audit, arguments),
            model=model,
            looks=looks,
        )
    console.print(clusters_table(audit, train.class_names, f"{subject.name}: {about}"))
    for doubt in doubts(audit, train.class_names, looks):
        console.print(f"[yellow]Note:[/] {escape(doubt)}", highlight=False)
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def clusters_csv(audit: GroupAudit, names: Sequence[str]) -> str:
    """A line per cluster, by class and number."""
    text = io.StringIO()
    columns = (
        "class", "class_name", "cluster", "examples", "share", "silhouette", "lambda", "accuracy", "confidence",
        "mistaken_for", "mistaken", "draw_share", "weight",
    )  # fmt: skip
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    for one in audit.clusters:
        own, target = audit.partition.classes[one.label], one.mistaken_for
        silhouette = "" if own.silhouette is None else own.silhouette.value
        lines.writerow(
            [
                one.label, names[one.label], one.cluster, one.size, one.share, silhouette, own.lambda_, one.accuracy,
                one.confidence, "" if target is None else names[target], one.mistaken, one.draw_share, one.weight,
            ]
        )  # fmt: skip
    return text.getvalue()


def clusters_table(audit: GroupAudit, names: Sequence[str], title: str) -> Table:
    """The clusters for a terminal, most suspicious first."""
    from holdfast.spurious.group_inference.discovery import rank

    ranked = rank(audit.clusters)
    hidden = len(ranked) - _MOST_ROWS
    more = f"and {hidden} more in clusters.csv" if hidden > 0 else None
    numbers = ("examples", "of class", "silhouette", "accuracy", "mistaken for", "weight")
    table = plain_table(
        title, ("cluster", *numbers), right=numbers, caption=more, caption_justify="left", padding=(0, 1, 0, 0)
    )
    table.columns[0].overflow = table.columns[5].overflow = "fold"  # names of classes may be long, numbers are not
    for column in (1, 2, 3, 4, 6):
        table.columns[column].no_wrap = True
    for one in ranked[:_MOST_ROWS]:
        silhouette = audit.partition.classes[one.label].silhouette
        target = one.mistaken_for
        table.add_row(
            f"{escape(names[one.label])}, cluster {one.cluster}",
            number(one.size),
            percent(one.share),
            DASH if silhouette is None else f"{silhouette.value:.2f}",
            percent(one.accuracy),
            DASH if target is None else f"{escape(names[target])} {percent(one.mistaken)}",
            times(one.weight),
            style="bold" if one.stands_out else None,
        )
    return table


def parse_groups(arguments: Sequence[str]) -> tuple[Groups, Subject]:
    """Options of `audit groups`; the fields of the chosen data set are options too.

    Args:
        arguments: as typed.

    Returns:
        How to look, and what at.

    Raises:
        ConfigError: if a data set is unknown, a run isn't finished, or options contradict each other.
    """
    about = _PREAMBLE.format(data=", ".join(DATASETS), models=model_names())
    first, _ = tyro.cli(Groups, args=arguments, prog=_PROGRAM, add_help=False, return_unknown_args=True)
    if first.run is not None:
        _check(first)
        options = tyro.cli(Groups, args=arguments, prog=_PROGRAM, description=about)
        return options, _subject_of_run(first.run, first.data_root)
    options, name, data = parse_audit(
        Groups, arguments, DATASETS, DEFAULT_DATA, program=_PROGRAM, about=about, check=_check
    )
    return options, _subject_of_data(Path(name).name, data, options)


# ---------------------------------------------------------------------------------------------- what is audited


def _check(options: Groups) -> None:
    if options.k_max < 2:
        raise ConfigError(f"k_max is {options.k_max}; give at least 2 clusters to try")
    of_model = ("model", "model_args", "head")
    of_training = ("epochs", "batch_size", "learning_rate")
    for option, excluded in (("run", ("data", *of_model, "weights", *of_training)), ("weights", of_training)):
        given = [name for name in excluded if getattr(options, name) not in (None, {})]
        if getattr(options, option) is not None and given:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"--{option} says what is audited, so {names} would change nothing; leave that out")


def _subject_of_run(path: Path, root: Path | None) -> Subject:
    run = training.Run.open(path)
    if run.status != "finished":
        raise ConfigError(
            f"the run at {path} is not finished, so it has no chosen model; `holdfast fit --resume {path}` finishes it"
        )
    stored = parse(["--config", str(path / "config.yaml")])
    choices = stored.choices
    place = data_root(root or choices.data_root)
    name = Path(choices.data).name
    args, head = choices.model_args, choices.head
    return Subject(name, stored.data, choices.model, None, stored.training, place, args, head)


def _subject_of_data(name: str, data: DataSet, options: Groups) -> Subject:
    taken = ("model", "model_args", "head", "data_root", "batch_size", "learning_rate", "threads", "seed", "device")
    return subject_of_data(name, data, **{option: getattr(options, option) for option in taken})


def _model(options: Groups, subject: Subject, train: Examples) -> nn.Module:
    """The model to look at, or to train first."""
    import torch

    if options.run is not None:
        return chosen_model(training.Run.open(options.run), subject.data_root).model
    model = subject.spec(train, options.weights).build(subject.data_root)
    if options.weights is not None:
        fresh, head = subject.spec(train).skeleton(), subject.head
        if torch.equal(models.find_head(model, head)[1].weight, models.find_head(fresh, head)[1].weight):
            raise ConfigError(
                f"{options.weights} has no head for the {train.n_classes} classes of {subject.name}; give weights "
                "trained on it"
            )
    return model


def _about(options: Groups, subject: Subject, audit: GroupAudit) -> str:
    """What was audited, in a clause."""
    if options.run is not None:
        return f"{subject.model}, as chosen in the run {options.run.resolve().name}"
    if options.weights is not None:
        return f"{subject.model} with the weights of {options.weights.name}"
    return f"{subject.model} after {counted(audit.epoch or 0, 'epoch')} of plain training, seed {subject.settings.seed}"


def _look(options: Groups, subject: Subject, model: nn.Module, train: Examples, console: Console) -> GroupAudit:
    """The clusters, after some early epochs where the model isn't trained yet."""
    from holdfast.spurious.group_inference.discovery import audit_groups as audit_model
    from holdfast.spurious.group_inference.discovery import discover

    shown = 8 if train.n_classes <= _MANY_CLASSES else 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # the page and the terminal say it in their own words
        if options.run is not None or options.weights is not None:
            seed = subject.settings.seed
            return audit_model(
                model, train, output=options.output, k_max=options.k_max, shown=shown, seed=seed, head=subject.head
            )
        with TrainingProgress(f"{subject.name}, first epochs", console) as progress:
            (audit,) = discover(
                model,
                train,
                subject.settings,
                epochs=(2 if options.epochs is None else options.epochs,),
                output=options.output,
                k_max=options.k_max,
                shown=shown,
                listeners=[progress],
                head=subject.head,
            )
    return audit


def _own_looks(audit: GroupAudit, subject: Subject, model: nn.Module, train: Examples) -> list[Finding]:
    """Whether what stands out may be wrong labels, by what inputs and the network's features say."""
    import torch

    from holdfast.auditing.own_look import looks_of, own_look
    from holdfast.training.model_outputs import ModelOutputs

    if not audit.suspects:
        return []
    features = []
    with suppress(ConfigError):  # a network whose head nobody can tell: inputs alone then
        outputs = ModelOutputs(model, train, features=True, head=subject.head)
        features.append(outputs.features(torch.arange(len(train))))
    vectors, predictions = looks_of(train, *features), audit.probabilities.argmax(1)
    if not vectors:
        return []
    found = [
        own_look(one, audit.partition, predictions, vectors, train.class_names, seed=subject.settings.seed)
        for one in audit.suspects
    ]
    return [one for one in found if one is not None]


def _next(options: Groups, audit: GroupAudit, typed: Sequence[str]) -> dict[str, str]:
    """What to do about a shortcut, as a line to copy."""
    if audit.epoch is None:
        return {}
    words = ["holdfast", "fit", "--method", "spare", "--spare.infer-epoch", str(audit.epoch)]
    if options.output != Groups.output:
        words += ["--spare.output", options.output]
    if options.k_max != Groups.k_max:
        words += ["--spare.k-max", str(options.k_max)]
    copied = False
    for word in typed:
        if word.startswith("--"):
            copied = word.split("=")[0].replace("_", "-") not in ("--epochs", "--output", "--k-max", "--out")
        words += [word] if copied else []
    return {"Train with these clusters drawn equally often": shlex.join(words)}
