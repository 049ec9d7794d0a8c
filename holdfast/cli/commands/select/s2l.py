"""`holdfast select s2l`: choose fine-tuning data by the loss curves of a small model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from holdfast.cli.commands.select.options import PROGRAM, SCRATCH, S2l
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.runs import print_how_to_continue
from holdfast.cli.common.tables import plain_table
from holdfast.data.readers.instruction_columns import InstructionColumns
from holdfast.data.readers.instructions import Instructions, read_instructions
from holdfast.errors import ConfigError, DataError, Interrupted
from holdfast.files import write_atomically
from holdfast.finetuning import (
    FineTuningSettings,
    LanguageModel,
    Processes,
    S2lSelection,
    Template,
    Trajectories,
    load_language_model,
    resolve_budget,
    s2l_select,
    small_language_model,
)
from holdfast.finetuning.language_models.fine_tuning import Progress
from holdfast.finetuning.proxy import record_trajectories
from holdfast.provenance import machine
from holdfast.report.html.markup import counted, number, percent
from holdfast.report.pages.selection import write_selection
from holdfast.training.interruption import interruptible
from holdfast.training.run import Run

_RATE_FROM_SCRATCH = 2e-3
_NAMED = 100  # rows that were passed over, in results.json
_SUFFIXES = (".json", ".jsonl", ".parquet")
_DOING = {"training": "proxy, steps", "recording": "losses, examples"}


def select_s2l(options: S2l, typed: Sequence[str]) -> None:
    """Choose, and leave a directory behind.

    Args:
        options: what to choose from and how.
        typed: the arguments, for the record.
    """
    processes = Processes.started()
    console = Console(quiet=not processes.is_main)
    columns = InstructionColumns(options.prompt_column, options.response_column, options.source_column)
    data = read_instructions(options.data, columns, split=options.split, skip_bad=options.skip_bad)
    _say_how_it_was_read(data, console)
    budget = resolve_budget(options.budget, len(data))
    _check_sources(options, data, budget)
    run = Run(options.resume or _free(options, processes))

    def begin(undefined: NDArray[np.bool_]) -> None:
        lost = _check_enough(options, budget, undefined)
        if processes.is_main:
            if options.resume is None:
                Run.create(run.path, options.located().stored(), kind="selection", folders=())
            run.lock()
        processes.wait()
        if lost:
            console.print(f"{lost} and can't be chosen.", highlight=False, soft_wrap=True)

    try:
        if options.trajectories is not None:
            trajectories = _recorded(options.trajectories, data)
            begin(trajectories.undefined)
        else:
            with interruptible():
                trajectories = _record(options, data, begin, folder=run.path, processes=processes, console=console)
    except (KeyboardInterrupt, Interrupted):
        if (run.path / "config.yaml").exists():
            print_how_to_continue(run, console)
        raise
    if not processes.is_main:
        return
    chosen = s2l_select(
        trajectories.losses,
        budget,
        k=options.clusters,
        sources=data.sources if options.by_source else None,
        undefined=trajectories.undefined,
        smallest=options.smallest,
        seed=options.seed,
        start=options.start,
        engine=options.engine,
    )
    suffix = Path(options.data).suffix if Path(options.data).suffix in _SUFFIXES else data.suffix
    subset = run.path / f"subset{suffix}"
    write_atomically(subset, data.part(chosen.positions).encoded(suffix))
    write_atomically(run.path / "clusters.parquet", clusters_parquet(chosen, data))
    _page(options, data, trajectories, chosen, folder=run.path, typed=typed)
    run.save_results(_results(chosen, data, trajectories))
    console.print(sources_table(chosen, data))
    console.print(f"Subset: [bold]{escape(str(subset))}[/]", highlight=False, soft_wrap=True)
    console.print(f"Page: [bold]{escape(str(run.path / 'report.html'))}[/]", highlight=False, soft_wrap=True)


def _say_how_it_was_read(data: Instructions, console: Console) -> None:
    """What was taken for what, and what was passed over."""
    answers = sum(len(chat.learned) for chat in data.chats)
    told = [f"{counted(len(data), 'conversation')} with {counted(answers, 'answer')} to learn"]
    if data.source_column is not None:
        told.append(f"{counted(len(data.source_names), 'source')} by the column {data.source_column!r}")
    console.print(escape("; ".join(told)) + ".", highlight=False, soft_wrap=True)
    if data.skipped:
        passed = f"{counted(len(data.skipped), 'row')} passed over, such as: {data.skipped[0]}"
        console.print(escape(passed), highlight=False, soft_wrap=True)


def sources_table(chosen: S2lSelection, data: Instructions) -> Table:
    """What was chosen of each source."""
    title = f"{len(chosen.positions):,} of {len(data):,} examples, of {len(chosen.clusters.centres):,} clusters"
    numbers = ("examples", "chosen", "of the data", "of the choice")
    table = plain_table(title, ("source", *numbers), right=numbers)
    table.columns[0].overflow = "fold"
    for name, counts in _counts(chosen, data).items():
        table.add_row(
            escape(name),
            number(counts["examples"]),
            number(counts["chosen"]),
            percent(counts["examples"] / len(data)),
            percent(counts["chosen"] / len(chosen.positions)),
        )
    return table


def clusters_parquet(chosen: S2lSelection, data: Instructions) -> bytes:
    """Source and cluster of every example, by id, and whether it was chosen; cluster -1 has no loss."""
    picked = [False] * len(data)
    for position in chosen.positions.tolist():
        picked[position] = True
    table = {
        "id": range(len(data)),
        "source": [data.source_names[code] for code in data.sources],
        "cluster": chosen.clusters.labels,
        "chosen": picked,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array(values) for name, values in table.items()}), sink)
    return bytes(sink.getvalue().to_pybytes())


def _counts(chosen: S2lSelection, data: Instructions) -> dict[str, dict[str, int]]:
    examples, taken = (
        np.bincount(sources, minlength=len(data.source_names)).tolist()
        for sources in (data.sources, data.sources[chosen.positions])
    )
    return {name: {"examples": examples[place], "chosen": taken[place]} for place, name in enumerate(data.source_names)}


def _results(chosen: S2lSelection, data: Instructions, trajectories: Trajectories) -> dict[str, object]:
    return {
        "examples": len(data),
        "chosen": len(chosen.positions),
        "clusters": len(chosen.clusters.centres),
        "undefined": int(trajectories.undefined.sum()),
        "skipped": list(data.skipped[:_NAMED]),
        "skipped_rows": len(data.skipped),
        "sources": _counts(chosen, data),
        "seconds": None if trajectories.seconds is None else asdict(trajectories.seconds),
    }


def _free(options: S2l, processes: Processes) -> Path:
    """Where a new directory may be made."""
    if processes.count > 1 and options.out is None:
        raise ConfigError("several processes must agree on where to write; give --out DIR")
    place = options.out or free_place("selections", f"{Path(options.data).stem}-s2l-s{options.seed}")
    if processes.is_main:
        Run.check_free(place)
        for subset in (place / f"subset{suffix}" for suffix in _SUFFIXES):
            if subset.exists():
                raise ConfigError(f"{subset} is there already and would be lost; choose another --out")
    return place


def _check_sources(options: S2l, data: Instructions, budget: int) -> None:
    """Refuse more sources than there are examples to choose: which of them had one would be an accident."""
    if options.by_source and len(data.source_names) > budget:
        raise ConfigError(
            f"{data.name} has {number(len(data.source_names))} sources and the budget is {number(budget)}, so not all "
            "of them could have an example; leave sources out with --no-by-source, or name another column with "
            "--source-column"
        )


def _check_enough(options: S2l, budget: int, undefined: NDArray[np.bool_]) -> str | None:
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


def _recorded(path: Path, data: Instructions) -> Trajectories:
    trajectories = Trajectories.load(path)
    if trajectories.ids.tolist() != list(range(len(data))):
        raise DataError(
            f"{path} has the losses of {len(trajectories):,} examples and {data.name} has {len(data):,}; give the "
            "trajectories of this data"
        )
    if trajectories.key.get("data", data.fingerprint) != data.fingerprint:
        raise DataError(
            f"{path} has the losses of as many examples as {data.name} has, but of others; give the trajectories of "
            "this data, or leave out --trajectories to record them"
        )
    return trajectories


def _proxy(options: S2l, data: Instructions, processes: Processes) -> LanguageModel:
    device = processes.device(options.device)
    if options.proxy == SCRATCH:
        template = Template.named(options.template, None)
        texts = [piece.text for chat in data.chats for piece in template.pieces(chat, None)]
        proxy = small_language_model(texts, longest=options.max_length, seed=options.seed)
    else:
        proxy = load_language_model(options.proxy)
    proxy.model.to(device)
    return proxy


def _record(
    options: S2l,
    data: Instructions,
    begin: Callable[[NDArray[np.bool_]], None],
    *,
    folder: Path,
    processes: Processes,
    console: Console,
) -> Trajectories:
    usual = _RATE_FROM_SCRATCH if options.proxy == SCRATCH else FineTuningSettings.learning_rate
    rate = usual if options.learning_rate is None else options.learning_rate
    settings = FineTuningSettings(options.epochs, None, options.batch_size, rate, seed=options.seed)
    some = options.proxy_examples
    trained = None if some is None else resolve_budget(some, len(data), "--proxy-examples")
    proxy = _proxy(options, data, processes)
    with _bars(console) as progress:
        trajectories = record_trajectories(
            data,
            proxy,
            folder / "proxy",
            settings,
            template=options.template,
            max_length=options.max_length,
            every=options.every,
            trained=trained,
            processes=processes,
            progress=progress,
            ready=begin,
            skip_bad=options.skip_bad,
        )
    if processes.is_main:
        trajectories.save(folder / "trajectories.parquet")
    return trajectories


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Progress], None]]:
    """A bar for the training and one for the recording in between."""
    bar = Bar(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )
    tasks = {doing: bar.add_task(title, total=None, loss="", visible=False) for doing, title in _DOING.items()}

    def progress(state: Progress) -> None:
        loss = "" if state.loss is None else f"loss {state.loss:.3f}"
        bar.update(tasks[state.doing], completed=state.done, total=state.total, loss=loss, visible=True)

    with bar:
        yield progress


def _page(
    options: S2l,
    data: Instructions,
    trajectories: Trajectories,
    chosen: S2lSelection,
    *,
    folder: Path,
    typed: Sequence[str],
) -> None:
    curves = options.trajectories or folder / "trajectories.parquet"
    again = options.again(curves, "10%")
    proxy = "a small GPT-NeoX trained from scratch" if options.proxy == SCRATCH else options.proxy
    by = f"the losses in {options.trajectories.name}" if options.trajectories else f"the loss curves of {proxy}"
    write_selection(
        folder / "report.html",
        chosen,
        data,
        trajectories,
        about=f"chosen by {by}, seed {options.seed}",
        facts={"command": shlex.join([*PROGRAM.split(), *typed]), **options.stored(), **machine()},
        commands={"Choose another number by the same curves, without training": shlex.join([*PROGRAM.split(), *again])},
    )
