"""What a selection leaves behind: the subset in the input's format, as ids and as weights, its table and its page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.cli.commands.select.options import PROGRAM, SCRATCH, Select
from holdfast.cli.common.tables import plain_table
from holdfast.data.readers.instructions import Instructions
from holdfast.errors import counted
from holdfast.files import write_atomically
from holdfast.finetuning import S2lSelection, Trajectories
from holdfast.finetuning.selection.names import WITHOUT_MODEL
from holdfast.integrations.trainer_configurations import MESSAGES, Trainer, as_messages, configurations
from holdfast.provenance import machine
from holdfast.report.html.markup import number, percent
from holdfast.report.pages.choice import write_choice_page
from holdfast.report.pages.selection import write_selection
from holdfast.training.health.check import Health
from holdfast.training.run import Run

Ints = NDArray[np.int64]

_NAMED = 100  # rows that were passed over, in results.json
SUFFIXES = (".json", ".jsonl", ".parquet")

#: Told which examples have nothing to learn, before work that takes long.
Begin = Callable[[NDArray[np.bool_]], None]


@dataclass(frozen=True, eq=False)
class Choice:
    """What a method chose.

    Attributes:
        positions: of the chosen examples, increasing.
        weights: how many examples each stands for, with mean one.
        health: whether what the method assumes was so.
        undefined: examples that could not be chosen.
        clusters: of S2L.
        trajectories: by which S2L chose.
        k: clusters of each source that S2L asked for.
    """

    positions: Ints
    weights: NDArray[np.float64]
    health: Health
    undefined: int = 0
    clusters: S2lSelection | None = None
    trajectories: Trajectories | None = None
    k: int | None = None


def say_how_it_was_read(data: Instructions, console: Console) -> None:
    """What was taken for what, and what was passed over."""
    answers = sum(len(chat.learned) for chat in data.chats)
    told = [f"{counted(len(data), 'conversation')} with {counted(answers, 'answer')} to learn"]
    if data.source_column is not None:
        told.append(f"{counted(len(data.source_names), 'source')} by the column {data.source_column!r}")
    console.print(escape("; ".join(told)) + ".", highlight=False, soft_wrap=True)
    if data.skipped:
        passed = f"{counted(len(data.skipped), 'row')} passed over, such as: {data.skipped[0]}"
        console.print(escape(passed), highlight=False, soft_wrap=True)


def write_choice(
    options: Select, data: Instructions, choice: Choice, *, run: Run, typed: Sequence[str], console: Console
) -> Path:
    """Write everything; print what was chosen of each source.

    Returns:
        Where the subset is.
    """
    suffix = Path(options.data).suffix if Path(options.data).suffix in SUFFIXES else data.suffix
    subset = run.path / f"subset{suffix}"
    write_atomically(subset, data.part(choice.positions).encoded(suffix))
    write_atomically(run.path / "ids.txt", "".join(f"{position}\n" for position in choice.positions.tolist()).encode())
    write_atomically(run.path / "weights.parquet", _parquet({"id": choice.positions, "weight": choice.weights}))
    if options.for_trainer is not None:
        _write_for(options.for_trainer, options, data.part(choice.positions), choice, run.path)
    if choice.clusters is not None:
        write_atomically(run.path / "clusters.parquet", clusters_parquet(choice.clusters, data))
    _write_page(options, data, choice, folder=run.path, typed=typed)
    run.save_results(_results(options, choice, data))
    console.print(sources_table(choice, data))
    return subset


def sources_table(choice: Choice, data: Instructions) -> Table:
    """What was chosen of each source."""
    of = f", of {len(choice.clusters.clusters.centres):,} clusters" if choice.clusters else ""
    title = f"{len(choice.positions):,} of {len(data):,} examples{of}"
    numbers = ("examples", "chosen", "of the data", "of the choice")
    table = plain_table(title, ("source", *numbers), right=numbers)
    table.columns[0].overflow = "fold"
    for name, counts in _counts(choice.positions, data).items():
        table.add_row(
            escape(name),
            number(counts["examples"]),
            number(counts["chosen"]),
            percent(counts["examples"] / len(data)),
            percent(counts["chosen"] / len(choice.positions)),
        )
    return table


def _write_for(trainer: Trainer, options: Select, subset: Instructions, choice: Choice, folder: Path) -> None:
    """The subset as messages with weights, and what a trainer needs to train on it."""
    plain = all(len(chat.turns) == 1 for chat in subset.chats)
    write_atomically(folder / MESSAGES, as_messages(subset.chats, choice.weights.tolist()).encode())
    files = configurations(trainer, str(folder.resolve()), max_length=options.max_length, plain=plain)
    for name, text in files.items():
        write_atomically(folder / name, text.encode())


def clusters_parquet(chosen: S2lSelection, data: Instructions) -> bytes:
    """Source and cluster of every example, by id, and whether it was chosen; cluster -1 has no loss."""
    picked = np.zeros(len(data), np.bool_)
    picked[chosen.positions] = True
    names = pa.DictionaryArray.from_arrays(pa.array(data.sources, pa.int32()), pa.array(data.source_names))
    return _parquet(
        {
            "id": np.arange(len(data)),
            "source": names.cast(pa.string()),
            "cluster": chosen.clusters.labels,
            "chosen": picked,
        }
    )


def _parquet(columns: dict[str, object]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), sink)
    return bytes(sink.getvalue().to_pybytes())


def _counts(positions: Ints, data: Instructions) -> dict[str, dict[str, int]]:
    examples, taken = (
        np.bincount(sources, minlength=len(data.source_names)).tolist()
        for sources in (data.sources, data.sources[positions])
    )
    return {name: {"examples": examples[place], "chosen": taken[place]} for place, name in enumerate(data.source_names)}


def _results(options: Select, choice: Choice, data: Instructions) -> dict[str, object]:
    found: dict[str, object] = {
        "method": options.method,
        "examples": len(data),
        "chosen": len(choice.positions),
        "undefined": choice.undefined,
        "skipped": list(data.skipped[:_NAMED]),
        "skipped_rows": len(data.skipped),
        "sources": _counts(choice.positions, data),
        "health": choice.health.to_json(),
    }
    if choice.clusters is not None and choice.trajectories is not None:
        seconds = choice.trajectories.seconds
        found |= {
            "clusters": len(choice.clusters.clusters.centres),
            "undefined": int(choice.trajectories.undefined.sum()),
            "seconds": None if seconds is None else asdict(seconds),
        }
    return found


def _write_page(options: Select, data: Instructions, choice: Choice, *, folder: Path, typed: Sequence[str]) -> None:
    place = folder / "report.html"
    facts = {"command": shlex.join([*PROGRAM.split(), *typed]), **options.stored(), **machine()}
    proxy = "a small GPT-NeoX trained from scratch" if options.proxy == SCRATCH else options.proxy
    if choice.clusters is None or choice.trajectories is None:
        by = "" if options.method in WITHOUT_MODEL else f" by {proxy}"
        about = f"chosen by {options.method}{by}, seed {options.seed}"
        write_choice_page(place, choice.positions, data, method=options.method, about=about, facts=facts)
        return
    curves = options.trajectories or folder / "trajectories.parquet"
    again = replace(options, clusters=choice.k).again(curves, "10%")
    by = f"the losses in {options.trajectories.name}" if options.trajectories else f"the loss curves of {proxy}"
    write_selection(
        place,
        choice.clusters,
        data,
        choice.trajectories,
        about=f"chosen by {by}, seed {options.seed}",
        facts=facts,
        health=choice.health,
        commands={"Choose another number by the same curves, without training": shlex.join([*PROGRAM.split(), *again])},
    )
