"""`holdfast audit`: look into data and models before training in earnest; each audit leaves a page to look at."""

from __future__ import annotations

import csv
import io
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from safetensors.torch import save
from torch import nn

from holdfast.cli.commands.audit.multimodal import multimodal, parse_multimodal, verdict
from holdfast.cli.commands.audit.poison import audit_poison
from holdfast.cli.commands.audit.subject import Subject, subject_of_data, whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.options import DEFAULT_DATA, named_data, parse
from holdfast.cli.common.progress import TrainingProgress
from holdfast.data import DATASETS, DataSet, Examples, data_root
from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.files import write_atomically
from holdfast.models import MODELS, build, find_head
from holdfast.primitives.threads import torch_threads
from holdfast.provenance import machine
from holdfast.report.html.markup import DASH, counted, number, percent, times
from holdfast.report.pages.audit_groups import doubts, write_audit
from holdfast.spurious.group_inference.discovery import GroupAudit, audit_groups, discover, rank
from holdfast.spurious.group_inference.spare import Output
from holdfast.training import Run

_PREAMBLE = """Show the clusters that a young network makes of each class, so that a person can see the shortcut.

Trains the data set's recipe for a few epochs, clusters the outputs of each class as SPARE does, and writes a page with
the clusters, what they are taken for, and their members; no group labels are used. Open audit.html in a browser. Beside
it are clusters.csv, the partition by example id, and the early model.

Data sets: {data}; or a folder with images and a metadata.csv.

Models: {models}.

Name the data set first to see its own options too, as in `holdfast audit groups --data cmnist5 --help`.

Examples: `holdfast audit groups`; `holdfast audit groups --data photos/ --folder.columns.attribute None --epochs 3`;
`holdfast audit groups --run runs/mine`; `holdfast audit groups --weights early.safetensors --output features`."""

_PROGRAM = "holdfast audit groups"
_MANY_CLASSES = 10
_MOST_ROWS = 30


@dataclass(frozen=True)
class Groups:
    """What to audit, how, and where to write.

    Attributes:
        data: a data set's name, or a folder with images and a metadata.csv; coloured-digits by default.
        run: audit the chosen model of this run directory of `holdfast fit`, on its training set.
        weights: audit the weights in this file instead of training.
        model: a model's name; the data set's recipe names one.
        epochs: early epochs to train, 2 by default.
        batch_size: examples per mini-batch, by the recipe where omitted.
        learning_rate: by the recipe where omitted.
        output: what is clustered; `features` are the inputs of the last linear layer.
        k_max: try 2 to this many clusters in each class.
        seed: names every random stream; a run has its own.
        device: where to train.
        threads: CPU threads of torch, by the recipe where omitted; small models are fastest with 1.
        out: where the page goes; audits/DATA-groups-sSEED by default.
        data_root: where data sets live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """

    data: str | None = None
    run: Path | None = None
    weights: Path | None = None
    model: str | None = None
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


def groups(asked: Groups, subject: Subject, typed: Sequence[str]) -> None:
    """Audit groups: write the page and the files beside it, and show the clusters.

    Args:
        asked: how to look, and where to write.
        subject: what is audited.
        typed: the arguments, for the record.
    """
    console = Console()
    out = asked.out or free_place("audits", f"{subject.name}-groups-s{subject.settings.seed}")
    with whole_folder(out) as folder, torch_threads(subject.settings.threads or None):
        train = subject.data.load(subject.data_root).train
        model = _model(asked, subject, train)
        found = _look(asked, subject, model, train, console)
        about = _about(asked, subject, found)
        if found.epoch is not None:
            weights = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
            write_atomically(folder / "early.safetensors", save(weights))
        found.partition.save(folder / "partition")
        write_atomically(folder / "clusters.csv", clusters_csv(found, train.class_names).encode())
        command = shlex.join([*_PROGRAM.split(), *typed])
        write_audit(
            folder / "audit.html",
            found,
            train,
            name=subject.name,
            about=about,
            facts={
                "command": command,
                "examples": number(len(train)),
                "clustered output": asked.output,
                "clusters tried": f"2 to {asked.k_max} in each class",
                "seed": subject.settings.seed,
                **machine(),
            },
            commands=_next(asked, found, typed),
            model=model,
        )
    console.print(clusters_table(found, train.class_names, f"{subject.name}: {about}"))
    for doubt in doubts(found, train.class_names):
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
        found, target = audit.partition.classes[one.label], one.mistaken_for
        silhouette = "" if found.silhouette is None else found.silhouette.value
        lines.writerow(
            [
                one.label, names[one.label], one.cluster, one.size, one.share, silhouette, found.lambda_, one.accuracy,
                one.confidence, "" if target is None else names[target], one.mistaken, one.draw_share, one.weight,
            ]
        )  # fmt: skip
    return text.getvalue()


def clusters_table(audit: GroupAudit, names: Sequence[str], title: str) -> Table:
    """The clusters for a terminal, most suspicious first."""
    ranked = rank(audit.clusters)
    hidden = len(ranked) - _MOST_ROWS
    more = f"and {hidden} more in clusters.csv" if hidden > 0 else None
    table = Table(
        title=escape(title),
        title_justify="left",
        caption=more,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("cluster", no_wrap=True)
    for column in ("examples", "of class", "silhouette", "accuracy", "mistaken for", "weight"):
        table.add_column(column, justify="right")
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
    about = _PREAMBLE.format(data=", ".join(DATASETS), models=", ".join(sorted(MODELS)))
    first, _ = tyro.cli(Groups, args=arguments, prog=_PROGRAM, add_help=False, return_unknown_args=True)
    _check(first)
    if first.run is not None:
        return tyro.cli(Groups, args=arguments, prog=_PROGRAM, description=about), _subject_of_run(
            first.run, first.data_root
        )
    data = first.data or DEFAULT_DATA
    data_class, folder = named_data(data)
    own = field() if folder is None else field(default=data_class(path=folder))  # type: ignore[call-arg]
    parts: list[tuple[str, Any, Any]] = [
        ("data", Annotated[data_class, tyro.conf.arg(name=data_class.name)], own),
        ("asked", Annotated[Groups, tyro.conf.arg(name="")], field(default=Groups())),
    ]
    parsed: Any = tyro.cli(make_dataclass("GroupsArguments", parts), args=arguments, prog=_PROGRAM, description=about)
    return parsed.asked, _subject_of_data(Path(data).name, parsed.data, parsed.asked)


def _groups(arguments: list[str]) -> None:
    """The clusters that SPARE finds in each class without group labels: do they show a shortcut?"""
    groups(*parse_groups(arguments), arguments)


def _multimodal(arguments: list[str]) -> None:
    """The visible things that a vision-language model recognises classes by: are they shortcuts?"""
    multimodal(*parse_multimodal(arguments), arguments)


def _verdict(arguments: list[str]) -> None:
    """Write down whether an attribute that `audit multimodal` found is spurious."""
    tyro.cli(verdict, args=arguments, prog="holdfast audit verdict")


#: What can be audited; the first line of each says what one sees.
AUDITS = {"groups": _groups, "poison": audit_poison, "multimodal": _multimodal, "verdict": _verdict}


def main(arguments: list[str]) -> int:
    """Run the command; alone it lists what can be audited."""
    chosen = arguments[0] if arguments else "--help"
    if chosen not in AUDITS:
        about = "Look into data and models; each audit leaves a page behind."
        tyro.extras.subcommand_cli_from_dict(AUDITS, args=[chosen], prog="holdfast audit", description=about)
    AUDITS[chosen](arguments[1:])
    return 0


# ---------------------------------------------------------------------------------------------- what is audited


def _check(asked: Groups) -> None:
    if asked.k_max < 2:
        raise ConfigError(f"k_max is {asked.k_max}; give at least 2 clusters to try")
    training = ("epochs", "batch_size", "learning_rate")
    for option, excluded in (("run", ("data", "model", "weights", *training)), ("weights", training)):
        given = [name for name in excluded if getattr(asked, name) is not None]
        if getattr(asked, option) is not None and given:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError(f"--{option} says what is audited, so {names} would change nothing; leave that out")


def _subject_of_run(path: Path, root: Path | None) -> Subject:
    run = Run.open(path)
    if run.status != "finished":
        raise ConfigError(
            f"the run at {path} is not finished, so it has no chosen model; `holdfast fit --resume {path}` finishes it"
        )
    options = parse(["--config", str(path / "config.yaml")])
    choices = options.choices
    place = data_root(root or choices.data_root)
    return Subject(Path(choices.data).name, options.data, choices.model, None, options.training, place)


def _subject_of_data(name: str, data: DataSet, asked: Groups) -> Subject:
    taken = ("model", "data_root", "batch_size", "learning_rate", "threads", "seed", "device")
    return subject_of_data(name, data, **{option: getattr(asked, option) for option in taken})


def _model(asked: Groups, subject: Subject, train: Examples) -> nn.Module:
    """The model to look at, or to train first."""
    shape, classes, seed = train.input_shape, train.n_classes, subject.settings.seed
    if asked.run is not None:
        model = build(subject.model, shape, classes)
        model.load_state_dict(Run.open(asked.run).load_checkpoint("best")["model"])
        return model
    start = asked.weights or subject.start
    model = build(subject.model, shape, classes, seed=seed, weights=start, root=subject.data_root)
    if asked.weights is not None:
        fresh = build(subject.model, shape, classes, seed=seed)
        if torch.equal(find_head(model)[1].weight, find_head(fresh)[1].weight):
            raise ConfigError(
                f"{asked.weights} has no head for the {classes} classes of {subject.name}; give weights trained on it"
            )
    return model


def _about(asked: Groups, subject: Subject, found: GroupAudit) -> str:
    """What was audited, in a clause."""
    if asked.run is not None:
        return f"{subject.model}, as chosen in the run {asked.run.resolve().name}"
    if asked.weights is not None:
        return f"{subject.model} with the weights of {asked.weights.name}"
    return f"{subject.model} after {counted(found.epoch or 0, 'epoch')} of plain training, seed {subject.settings.seed}"


def _look(asked: Groups, subject: Subject, model: nn.Module, train: Examples, console: Console) -> GroupAudit:
    """The clusters, after some early epochs where the model isn't trained yet."""
    shown = 8 if train.n_classes <= _MANY_CLASSES else 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # the page and the terminal say it in their own words
        if asked.run is not None or asked.weights is not None:
            seed = subject.settings.seed
            return audit_groups(model, train, output=asked.output, k_max=asked.k_max, shown=shown, seed=seed)
        with TrainingProgress(f"{subject.name}, first epochs", console) as progress:
            (found,) = discover(
                model,
                train,
                subject.settings,
                epochs=(2 if asked.epochs is None else asked.epochs,),
                output=asked.output,
                k_max=asked.k_max,
                shown=shown,
                listeners=[progress],
            )
    return found


def _next(asked: Groups, found: GroupAudit, typed: Sequence[str]) -> dict[str, str]:
    """What to do about a shortcut, as a line to copy."""
    if found.epoch is None:
        return {}
    words = ["holdfast", "fit", "--method", "spare", "--spare.infer-epoch", str(found.epoch)]
    if asked.output != Groups.output:
        words += ["--spare.output", asked.output]
    if asked.k_max != Groups.k_max:
        words += ["--spare.k-max", str(asked.k_max)]
    kept = False
    for word in typed:
        if word.startswith("--"):
            kept = word.split("=")[0].replace("_", "-") not in ("--epochs", "--output", "--k-max", "--out")
        words += [word] if kept else []
    return {"Train with draws that even these clusters": shlex.join(words)}
