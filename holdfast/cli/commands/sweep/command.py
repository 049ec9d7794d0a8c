"""`holdfast sweep`: every method with as many trials and seeds, on several processes, and a page that compares them.

A trial is `holdfast fit` with some of the options drawn (`holdfast.ranges`), run by a worker process of one thread. Its
numbers are kept as a small file in the sweep's folder as soon as it is done, so a sweep that is killed, or a worker of
it, loses the trials that were under way and nothing else; the same command continues it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from holdfast.errors import CheckpointError, ConfigError, Interrupted

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.auto.candidates import Knowledge
    from holdfast.cli.common.options import FitOptions
    from holdfast.data import Splits
    from holdfast.papers.engine.experiment import Cell

_KIND = "holdfast.cli.commands.sweep.trial:run_trial"
_ABOUT = """Compare methods fairly: every one with the same number of trials and seeds.

A method's first trial has its defaults, the others draw hyperparameters from the ranges in `holdfast/ranges.py` and,
alike for all methods, the learning rate and the weight decay. Epoch and trial are chosen on the validation set: by its
worst group where groups are known there and, separately, by its worst class, as somebody without group labels must. The
page shows how each method differs from plain training (erm) under the same seeds, what its checks say, and its cost.

All other options are those of `holdfast fit` and hold for every trial, as in
`holdfast sweep --data photos/ --model resnet18 --epochs 20 --methods erm jtt spare`; see `holdfast fit --help`. Such an
option may also set what is drawn: then it is not drawn.

The same command continues a sweep that was stopped. How long it takes: methods x trials x seeds trainings, twice that
where validation groups are known."""
#: Options of `fit` that belong to one run, or that the sweep decides itself.
_REFUSED = ("method", "groups", "seed", "select-by", "select_by", "out", "resume", "track", "processes", "task",
            "reference", "strict", "print-config")  # fmt: skip


@dataclass(frozen=True)
class SweepOptions:
    """The sweep's own options.

    Attributes:
        methods: the methods to compare, or `all`; erm is always among them. By default six that suit what is known of
            the groups, as with `holdfast fit --method auto`.
        trials: per method; the first has its defaults.
        seeds: how many seeds, 0, 1, ...; intervals need at least 2.
        jobs: worker processes at a time, of one thread each; one per core by default.
        out: the sweep's folder; sweeps/DATA by default. A sweep that is there already is continued if it is the same.
    """

    methods: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ()
    trials: int = 2
    seeds: int = 3
    jobs: int | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "seeds", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} of the sweep is {value}; give at least 1")


def main(arguments: list[str]) -> int:
    """Run the command."""
    from rich.console import Console

    options, words = parse_sweep(arguments)
    return sweep(options, words, Console(), ["holdfast", "sweep", *arguments])


def parse_sweep(arguments: Sequence[str]) -> tuple[SweepOptions, list[str]]:
    """The sweep's own options, and the words that are those of `holdfast fit`, which are checked too.

    Raises:
        ConfigError: if an option is the sweep's to decide, or what `holdfast fit` refuses.
    """
    program = "holdfast sweep"
    if any(word in ("-h", "--help") for word in arguments):
        tyro.cli(SweepOptions, args=["--help"], prog=program, description=_ABOUT)
    options, words = tyro.cli(
        SweepOptions, args=list(arguments), prog=program, description=_ABOUT, return_unknown_args=True
    )
    from holdfast.cli.common.options import parse  # brings torch, which `--help` needn't

    _refuse_words(words)
    parse([*words, "--method", "erm"])
    return options, words


def sweep(options: SweepOptions, words: Sequence[str], console: Console, command: Sequence[str]) -> int:
    """Run what is missing and write the page.

    Returns:
        0, or 1 where a trial failed.
    """
    from holdfast.cli.commands.sweep.comparison import rows_of
    from holdfast.cli.common.cell_progress import cell_progress
    from holdfast.cli.common.notes import show_notes
    from holdfast.cli.common.options import parse
    from holdfast.data.catalog import data_root
    from holdfast.errors import counted
    from holdfast.papers.engine.execute import execute
    from holdfast.report.pages.sweep import SweepRecord, sweep_table, write_sweep
    from holdfast.training.interruption import interruptible

    plain = parse([*words, "--method", "erm"])
    splits = plain.data.load(data_root(plain.choices.data_root))
    show_notes(splits.notes, splits.name, console)
    selections, metric = _selections(splits), _metric(splits)
    methods = _methods(options.methods, splits)
    settings, cells = _cells(plain, words, methods, options.trials, selections)
    place = options.out or Path("sweeps") / Path(plain.choices.data).name
    seeds = tuple(range(options.seeds))
    _open(place, {"words": list(words), "methods": list(methods), "trials": options.trials, "seeds": options.seeds})
    check_trials(place / "trials")
    runs = len(cells) * len(seeds)
    parts = zip((len(methods), options.trials, len(seeds)), ("method", "trial", "seed"), strict=True)
    counts = ", ".join(counted(count, noun) for count, noun in parts)
    ways = ", chosen with and without groups" if len(selections) > 1 else ""
    console.print(f"{counts}{ways}: {counted(runs, 'training')}", highlight=False)
    try:
        with interruptible(at_once=True), cell_progress(console, place.name, runs) as listener:
            outcomes = execute(cells, seeds, cache=place / "trials", jobs=options.jobs, listener=listener)
    except (KeyboardInterrupt, Interrupted):
        console.print(f"stopped; continue with: [bold]{shlex.join(command)}[/]", highlight=False, soft_wrap=True)
        raise
    rows = rows_of(outcomes, settings, seeds, metric)
    record = SweepRecord(
        splits.name, metric.partition("_")[2], options.trials, seeds, selections, tuple(rows), shlex.join(command)
    )
    page = write_sweep(place, record)
    for selection, why in selections.items():
        console.print(sweep_table(record, selection))
        console.print(why, highlight=False)
    console.print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def check_trials(folder: Path) -> None:
    """Refuse damaged trials, which nobody should find replaced by new numbers in silence.

    Raises:
        CheckpointError: if a file can't be what a trial left; it names it.
    """
    from holdfast.papers.engine.execute import is_outcome

    for file in sorted(folder.glob("*.json")):
        if not is_outcome(file):
            raise CheckpointError(
                f"{file} isn't a trial of this sweep, or is damaged; restore it, or delete it to compute it again"
            )


def _refuse_words(words: Sequence[str]) -> None:
    for name in _REFUSED:
        if any(word == f"--{name}" or word.startswith(f"--{name}=") for word in words):
            what = "--methods names the methods" if name in ("method", "groups") else "the sweep decides that itself"
            raise ConfigError(f"holdfast sweep takes no --{name}: {what}; leave it out")


def _selections(splits: Splits) -> dict[str, str]:
    """The ways to select: with the validation set's groups, where they are known, and without."""
    from holdfast.auto.knowledge import knowledge_of

    without = {"worst_class": "Chosen by the accuracy of the validation set's worst class: needs no group labels."}
    if knowledge_of(splits) == "none":
        return without
    return {"worst_group": "Chosen by the accuracy of the validation set's worst group: needs group labels.", **without}


def _metric(splits: Splits) -> str:
    return "worst_class" if splits.test.groups is None and splits.test.memberships is None else "worst_group"


def _methods(named: Sequence[str], splits: Splits) -> tuple[str, ...]:
    """Plain training first, then those that were named or that the groups' knowledge allows.

    Raises:
        ConfigError: if there is no such method, or one needs groups that are not known.
    """
    from holdfast.auto.candidates import CANDIDATES
    from holdfast.auto.choosing import check_names
    from holdfast.auto.knowledge import knowledge_of
    from holdfast.methods import METHODS

    known: Knowledge = knowledge_of(splits)
    if not named:
        return CANDIDATES[known]
    if list(named) == ["all"]:
        given: Mapping[Knowledge, tuple[str | None, ...]] = {
            "train": (None, "train", "validation"),
            "validation": (None, "validation"),
            "none": (None,),
        }
        needs = given[known]
        return tuple(name for name in METHODS if METHODS[name].needs_groups_of in needs)
    check_names(named, known, "holdfast sweep", "--methods")
    return tuple(dict.fromkeys(("erm", *named)))


def _cells(
    plain: FitOptions, words: Sequence[str], methods: Sequence[str], trials: int, selections: Mapping[str, str]
) -> tuple[dict[tuple[str, int], str], list[Cell]]:
    """What each trial draws, as options, and a cell per selection, method and trial."""
    from holdfast.papers.engine.experiment import Cell
    from holdfast.ranges import draw_trial

    drawn, cells = {}, []
    # The plain words are read wherever the sweep is continued: the data's place as it can be found from anywhere.
    common = [*words, "--data", plain.choices.data]
    for method in methods:
        for trial in range(trials):
            draw = draw_trial(method, trial, plain.training.learning_rate)
            values = {**draw.training, **{f"{method}.{name}": value for name, value in draw.options.items()}}
            given = [part for name, value in values.items() if not _is_set(name, words) for part in _words(name, value)]
            drawn[method, trial] = shlex.join(given)
            for selection in selections:
                of_trial = [*common, "--method", method, *given, "--select-by", selection]
                cells.append(Cell(f"{selection}/{method}/{trial}", _KIND, {"words": of_trial}))
    return drawn, cells


def _words(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", str(value)]


def _is_set(name: str, words: Sequence[str]) -> bool:
    from holdfast.cli.common.arguments import value_of

    return any(value_of(spelled, words) is not None for spelled in (name, name.replace("_", "-")))


def _open(place: Path, asked: Mapping[str, Any]) -> None:
    """Make the sweep's folder, or take up the one that is there.

    Raises:
        ConfigError: if there is another sweep, or something else.
    """
    from holdfast.files import write_atomically

    file = place / "sweep.json"
    if file.exists():
        try:
            before = json.loads(file.read_bytes())
        except ValueError as error:
            raise CheckpointError(f"{file} is damaged ({error}); restore it, or choose another --out") from error
        other = [
            name for name in asked if name not in ("trials", "seeds", "methods") and before.get(name) != asked[name]
        ]
        if other:
            raise ConfigError(
                f"{place} holds a sweep with other options ({shlex.join(map(str, before.get('words', [])))}); "
                "repeat its options to continue it, or choose another --out"
            )
    elif place.exists() and any(place.iterdir()):
        raise ConfigError(f"{place} isn't a sweep and isn't empty; choose another --out")
    try:
        (place / "trials").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{place} can't be made ({error.strerror}); choose another place with --out") from error
    write_atomically(file, json.dumps(dict(asked), indent=1).encode())
