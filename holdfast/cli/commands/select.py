"""`holdfast select`: choose the part of the data that is worth fine-tuning on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tyro
import yaml
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from holdfast.cli.commands.select_options import PROGRAM, SCRATCH, S2l, parse_s2l
from holdfast.cli.common.arguments import free_place
from holdfast.data.readers.instructions import InstructionColumns, Instructions, read_instructions
from holdfast.errors import ConfigError, DataError
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
from holdfast.training.run import Run

_RATE_FROM_SCRATCH = 2e-3
_SUFFIXES = (".json", ".jsonl", ".parquet")
_DOING = {"training": "proxy, steps", "recording": "losses, examples"}


def s2l(asked: S2l, typed: Sequence[str]) -> None:
    """Choose, and leave a directory behind.

    Args:
        asked: what to choose from and how.
        typed: the arguments, for the record.
    """
    processes = Processes.started()
    console = Console(quiet=not processes.is_main)
    columns = InstructionColumns(asked.prompt_column, asked.response_column, asked.source_column)
    data = read_instructions(asked.data, columns, split=asked.split)
    budget = resolve_budget(asked.budget, len(data))
    _check_sources(asked, data, budget)
    run = Run(asked.resume or _free(asked, processes))

    def begin(undefined: NDArray[np.bool_]) -> None:
        lost = _check_enough(asked, budget, undefined)
        if processes.is_main:
            if asked.resume is None:
                Run.create(run.path, asked.located().stored(), folders=())
            run.lock()
        processes.wait()
        if lost:
            console.print(f"{lost} and can't be chosen.", highlight=False, soft_wrap=True)

    try:
        if asked.trajectories is not None:
            trajectories = _recorded(asked.trajectories, data)
            begin(trajectories.undefined)
        else:
            trajectories = _record(asked, data, begin, folder=run.path, processes=processes, console=console)
    except KeyboardInterrupt:
        if (run.path / "config.yaml").exists():
            again = escape(f"{PROGRAM} --resume {shlex.quote(str(run.path))}")
            console.print(f"stopped; continue with: [bold]{again}[/]", highlight=False, soft_wrap=True)
        raise
    if not processes.is_main:
        return
    chosen = s2l_select(
        trajectories.losses,
        budget,
        k=asked.clusters,
        sources=data.sources if asked.by_source else None,
        undefined=trajectories.undefined,
        smallest=asked.smallest,
        seed=asked.seed,
        start=asked.start,
        engine=asked.engine,
    )
    suffix = Path(asked.data).suffix if Path(asked.data).suffix in _SUFFIXES else data.suffix
    subset = run.path / f"subset{suffix}"
    write_atomically(subset, data.part(chosen.positions).encoded(suffix))
    write_atomically(run.path / "clusters.parquet", clusters_parquet(chosen, data))
    _page(asked, data, trajectories, chosen, folder=run.path, typed=typed)
    run.save_results(_results(chosen, data, trajectories))
    console.print(sources_table(chosen, data))
    console.print(f"Subset: [bold]{escape(str(subset))}[/]", highlight=False, soft_wrap=True)
    console.print(f"Page: [bold]{escape(str(run.path / 'report.html'))}[/]", highlight=False, soft_wrap=True)


def sources_table(chosen: S2lSelection, data: Instructions) -> Table:
    """What was chosen of each source."""
    table = Table(
        title=f"{len(chosen.positions):,} of {len(data):,} examples, of {len(chosen.clusters.centres):,} clusters",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("source", overflow="fold")
    for column in ("examples", "chosen", "of the data", "of the choice"):
        table.add_column(column, justify="right")
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
        "sources": _counts(chosen, data),
        "seconds": None if trajectories.seconds is None else asdict(trajectories.seconds),
    }


def _free(asked: S2l, processes: Processes) -> Path:
    """Where a new directory may be made."""
    if processes.count > 1 and asked.out is None:
        raise ConfigError("several processes must agree on where to write; give --out DIR")
    place = asked.out or free_place("selections", f"{Path(asked.data).stem}-s2l-s{asked.seed}")
    if processes.is_main:
        Run.check_free(place)
        for subset in (place / f"subset{suffix}" for suffix in _SUFFIXES):
            if subset.exists():
                raise ConfigError(f"{subset} is there already and would be lost; choose another --out")
    return place


def _check_sources(asked: S2l, data: Instructions, budget: int) -> None:
    """Refuse more sources than there are examples to choose: which of them had one would be an accident."""
    if asked.by_source and len(data.source_names) > budget:
        raise ConfigError(
            f"{data.name} has {number(len(data.source_names))} sources and the budget is {number(budget)}, so not all "
            "of them could have an example; leave sources out with --no-by-source, or name another column with "
            "--source-column"
        )


def _check_enough(asked: S2l, budget: int, undefined: NDArray[np.bool_]) -> str | None:
    """Refuse a budget that those with a loss can't fill; a clause that says how many have none, if any."""
    lost, usable = int(undefined.sum()), int((~undefined).sum())
    if not lost:
        return None
    said = f"{number(lost)} of {counted(len(undefined), 'example')} {'has' if lost == 1 else 'have'} no "
    said += f"loss in {asked.trajectories}" if asked.trajectories else f"response within {asked.max_length} tokens"
    if budget > usable:
        remedy = "" if asked.trajectories else ", or raise --max-length"
        raise ConfigError(f"the budget is {number(budget)} and {said}; choose at most {number(usable)}{remedy}")
    return said


def _recorded(path: Path, data: Instructions) -> Trajectories:
    found = Trajectories.load(path)
    if found.ids.tolist() != list(range(len(data))):
        raise DataError(
            f"{path} has the losses of {len(found):,} examples and {data.name} has {len(data):,}; give the "
            "trajectories of this data"
        )
    if found.key.get("data", data.fingerprint) != data.fingerprint:
        raise DataError(
            f"{path} has the losses of as many examples as {data.name} has, but of others; give the trajectories of "
            "this data, or leave out --trajectories to record them"
        )
    return found


def _proxy(asked: S2l, data: Instructions, processes: Processes) -> LanguageModel:
    device = processes.device(asked.device)
    if asked.proxy == SCRATCH:
        template = Template.named(asked.template, None)
        texts = [template.render(turns, None) for turns in data.prompts]
        found = small_language_model([*texts, *data.responses], longest=asked.max_length, seed=asked.seed)
    else:
        found = load_language_model(asked.proxy)
    found.model.to(device)
    return found


def _record(
    asked: S2l,
    data: Instructions,
    begin: Callable[[NDArray[np.bool_]], None],
    *,
    folder: Path,
    processes: Processes,
    console: Console,
) -> Trajectories:
    usual = _RATE_FROM_SCRATCH if asked.proxy == SCRATCH else FineTuningSettings.learning_rate
    rate = usual if asked.learning_rate is None else asked.learning_rate
    settings = FineTuningSettings(asked.epochs, None, asked.batch_size, rate, seed=asked.seed)
    some = asked.proxy_examples
    trained = None if some is None else resolve_budget(some, len(data), "--proxy-examples")
    proxy = _proxy(asked, data, processes)
    with _bars(console) as progress:
        found = record_trajectories(
            data,
            proxy,
            folder / "proxy",
            settings,
            template=asked.template,
            max_length=asked.max_length,
            every=asked.every,
            trained=trained,
            processes=processes,
            progress=progress,
            ready=begin,
        )
    if processes.is_main:
        found.save(folder / "trajectories.parquet")
    return found


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Progress], None]]:
    """A bar for the training and one for the recording in between."""
    bar = Bar(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )
    tasks = {doing: bar.add_task(title, total=None, said="", visible=False) for doing, title in _DOING.items()}

    def progress(told: Progress) -> None:
        said = "" if told.loss is None else f"loss {told.loss:.3f}"
        bar.update(tasks[told.doing], completed=told.done, total=told.total, said=said, visible=True)

    with bar:
        yield progress


def _page(
    asked: S2l,
    data: Instructions,
    trajectories: Trajectories,
    chosen: S2lSelection,
    *,
    folder: Path,
    typed: Sequence[str],
) -> None:
    kept = asked.trajectories or folder / "trajectories.parquet"
    again = asked.again(kept, "10%")
    proxy = "a small GPT-NeoX trained from scratch" if asked.proxy == SCRATCH else asked.proxy
    by = f"the losses in {asked.trajectories.name}" if asked.trajectories else f"the loss curves of {proxy}"
    write_selection(
        folder / "report.html",
        chosen,
        data,
        trajectories,
        about=f"chosen by {by}, seed {asked.seed}",
        facts={"command": shlex.join([*PROGRAM.split(), *typed]), **asked.stored(), **machine()},
        commands={"Choose another number by the same curves, without training": shlex.join([*PROGRAM.split(), *again])},
    )


def _s2l(arguments: list[str]) -> None:
    """Choose fine-tuning data for a language model by the loss curves of a small one."""
    asked = parse_s2l(arguments)
    if asked.print_config:
        Console().print(yaml.safe_dump(asked.stored(), sort_keys=False), end="", highlight=False, soft_wrap=True)
        return
    s2l(asked, arguments)


#: Ways to choose; the first line of each says how.
SELECTIONS = {"s2l": _s2l}


def main(arguments: list[str]) -> int:
    """Run the command; alone it lists the ways to choose."""
    chosen = arguments[0] if arguments else "--help"
    if chosen not in SELECTIONS:
        about = "Choose the part of the data that is worth training on; each selection leaves a page behind."
        tyro.extras.subcommand_cli_from_dict(SELECTIONS, args=[chosen], prog="holdfast select", description=about)
    SELECTIONS[chosen](arguments[1:])
    return 0
