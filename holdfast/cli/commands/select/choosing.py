"""One selection from its options to a directory: read the data, choose by the method, write what was chosen."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from holdfast.cli.commands.select.by_curves import choose_by_curves
from holdfast.cli.commands.select.by_scores import choose_by_scores
from holdfast.cli.commands.select.options import Select
from holdfast.cli.commands.select.writing import SUFFIXES, Choice, say_how_it_was_read, write_choice
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.health import show_health
from holdfast.cli.common.runs import print_how_to_continue
from holdfast.data.readers.instruction_columns import InstructionColumns
from holdfast.data.readers.instructions import Instructions, read_instructions
from holdfast.errors import ConfigError, Interrupted, counted
from holdfast.finetuning import resolve_budget
from holdfast.report.html.markup import number
from holdfast.training.health.check import Health
from holdfast.training.interruption import interruptible
from holdfast.training.ranks import Ranks
from holdfast.training.run import Run

#: Bytes of a file from which on its rows and tokens stay on disk.
_LARGE = 2**28


def choose_and_write(options: Select, typed: Sequence[str], ranks: Ranks) -> Health | None:
    """Choose, and leave a directory behind.

    Args:
        options: what to choose from and how.
        typed: the arguments, for the record.
        ranks: the processes that share the work; the first one writes.

    Returns:
        Whether the choice is to be trusted, where the method has assumptions; None on other processes.
    """
    console = Console(quiet=not ranks.is_main)
    columns = _columns(options)
    with _on_disk(options, ranks) as folder:
        store = None if folder is None else folder / f"rows-{ranks.index}.arrow"
        data = read_instructions(options.data, columns, split=options.split, skip_bad=options.skip_bad, store=store)
        return _choose(options, data, typed=typed, ranks=ranks, folder=folder, console=console)


def _columns(options: Select) -> InstructionColumns:
    """What columns mean: as it is said, and else as it was where the losses were recorded that are chosen by."""
    given = (options.prompt_column, options.response_column, options.source_column)
    if options.trajectories is None or not (options.trajectories.parent / "config.yaml").is_file():
        return InstructionColumns(*given)
    before = Run.open(options.trajectories.parent).config
    names = ("prompt_column", "response_column", "source_column")
    return InstructionColumns(*(said or before.get(name) for name, said in zip(names, given, strict=True)))


@contextmanager
def _on_disk(options: Select, ranks: Ranks) -> Iterator[Path | None]:
    """A folder for rows and tokens where they don't stay in memory, removed at the end; None where they do."""
    file = Path(options.data)
    large = file.suffix in (".jsonl", ".parquet") and file.is_file() and file.stat().st_size >= _LARGE
    if options.on_disk == "no" or (options.on_disk == "auto" and not large):
        yield None
        return
    place = (options.resume or options.out or Path("selections")).resolve().parent
    place.mkdir(parents=True, exist_ok=True)
    made = ranks.from_main(lambda: tempfile.mkdtemp(prefix=".holdfast-", dir=place))
    try:
        yield Path(made)
    finally:
        if ranks.is_main:
            shutil.rmtree(made, ignore_errors=True)


def _choose(
    options: Select,
    data: Instructions,
    *,
    typed: Sequence[str],
    ranks: Ranks,
    folder: Path | None,
    console: Console,
) -> Health | None:
    say_how_it_was_read(data, console)
    budget = resolve_budget(options.budget, len(data))
    _check_sources(options, data, budget)
    run = Run(options.resume or _free(options, ranks))

    def create() -> None:
        if ranks.is_main:
            if options.resume is None:
                Run.create(run.path, options.located().stored(), kind="selection", folders=())
            run.lock()

    def begin(undefined: NDArray[np.bool_]) -> None:
        lost = _check_enough(options, budget, undefined)
        ranks.together(create)
        if lost:
            console.print(f"{lost} and can't be chosen.", highlight=False, soft_wrap=True)

    choose: Callable[..., Choice | None] = choose_by_curves if options.method == "s2l" else choose_by_scores
    try:
        with interruptible():
            choice = choose(options, data, budget, begin, run=run, tokens_in=folder, ranks=ranks, console=console)
    except (KeyboardInterrupt, Interrupted):
        if (run.path / "config.yaml").exists():
            print_how_to_continue(run, console)
        raise
    if choice is None:
        return None
    subset = write_choice(options, data, choice, run=run, typed=typed, console=console)
    if choice.health.findings:
        show_health(choice.health, console)
    console.print(f"Subset: [bold]{escape(str(subset))}[/]", highlight=False, soft_wrap=True)
    console.print(f"Page: [bold]{escape(str(run.path / 'report.html'))}[/]", highlight=False, soft_wrap=True)
    return choice.health


def _free(options: Select, ranks: Ranks) -> Path:
    """Where a new directory may be made."""
    if ranks.count > 1 and options.out is None:
        raise ConfigError("several processes must agree on where to write; give --out DIR")
    place = options.out or free_place("selections", f"{Path(options.data).stem}-{options.method}-s{options.seed}")
    if ranks.is_main:
        Run.check_free(place)
        for subset in (place / f"subset{suffix}" for suffix in SUFFIXES):
            if subset.exists():
                raise ConfigError(f"{subset} is there already and would be lost; choose another --out")
    return place


def _check_sources(options: Select, data: Instructions, budget: int) -> None:
    """Refuse shares of sources that can't be had: of more sources than examples to choose, or of none."""
    by_source = options.by_source and options.method in ("s2l", "facility-location", "source-balanced")
    if by_source and len(data.source_names) > budget:
        raise ConfigError(
            f"{data.name} has {number(len(data.source_names))} sources and the budget is {number(budget)}, so not all "
            "of them could have an example; leave sources out with --no-by-source, or name another column with "
            "--source-column"
        )
    if options.method == "source-balanced" and len(data.source_names) == 1:
        raise ConfigError(
            f"{data.name} names no sources, so there is nothing to balance; name their column with --source-column, or "
            "take --method random"
        )


def _check_enough(options: Select, budget: int, undefined: NDArray[np.bool_]) -> str | None:
    """Refuse a budget that those with a loss can't fill; a clause that says how many have none, if any."""
    lost, usable = int(undefined.sum()), int((~undefined).sum())
    if not lost:
        return None
    clause = f"{number(lost)} of {counted(len(undefined), 'example')} {'has' if lost == 1 else 'have'} no "
    clause += (
        f"loss in {options.trajectories}" if options.trajectories else f"response within {options.max_length} tokens"
    )
    if budget > usable:
        remedy = "" if options.trajectories else ", or raise --max-length"
        raise ConfigError(f"the budget is {number(budget)} and {clause}; choose at most {number(usable)}{remedy}")
    return clause
