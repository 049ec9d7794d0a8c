"""`holdfast audit arrays`: wrong labels, groups, near duplicates and outliers from anybody's model outputs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.markup import escape

from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.notes import show_notes
from holdfast.errors import ConfigError

PROGRAM = "holdfast audit arrays"
_PREAMBLE = """Look for wrong labels, groups, near duplicates and outliers in outputs of any model; nothing is trained.

Files are .npy, .npz, .csv, .parquet or .jsonl with a row per example; FILE:NAME picks an array or a column.
Probabilities must come from a model that was not trained on the example (by cross-validation): a model tends to
agree with the labels it was trained on. It writes audit.html and examples.csv, a line per example.

Examples: `holdfast audit arrays --labels labels.npy --probabilities probabilities.npy --features embeddings.npy`;
`holdfast audit arrays --labels outputs.npz:y --probabilities outputs.npz:p`; `holdfast audit arrays --labels
reviews.csv:stars --features embeddings.parquet`."""


@dataclass(frozen=True)
class Arrays:
    """What to audit, and where to write.

    Attributes:
        labels: the class of each example, numbers from 0 or words.
        probabilities: a column per class, rows that sum to one; finds wrong labels and groups.
        features: a vector per example; finds near duplicates and outliers.
        class_names: a name per column of the probabilities; by default the columns' names, or the alphabet.
        neighbours: to how many nearest neighbours the distance is measured.
        k_max: try 2 to this many clusters in each class.
        seed: names every random stream.
        out: where the page goes; audits/NAME-arrays by default.
    """

    labels: str
    probabilities: str | None = None
    features: str | None = None
    class_names: tuple[str, ...] = ()
    neighbours: int = 10
    k_max: int = 5
    seed: int = 0
    out: Path | None = None


def audit_arrays(arguments: list[str]) -> None:
    """Read, look, and write the page.

    Args:
        arguments: as typed.
    """
    options, console = parse_arrays(arguments), Console()
    from holdfast.data.own.array_files import read_array_file
    from holdfast.provenance import machine
    from holdfast.report.pages.audit_arrays import audit, sentences

    labels = read_array_file(options.labels, ("labels", "label", "y", "target", "class"))
    outputs = options.probabilities and read_array_file(
        options.probabilities, ("probabilities", "pred_probs", "probs", "p")
    )
    vectors = options.features and read_array_file(options.features, ("features", "embeddings", "x", "X"))
    name = Path(options.labels.partition(":")[0]).stem
    out = options.out or free_place("audits", f"{name}-arrays")
    show_notes([note for one in (labels, outputs, vectors) if one for note in one.notes], name, console)
    names = options.class_names or (_columns(outputs.columns, labels.values) if outputs else ())
    found = audit(
        labels.values,
        outputs.values if outputs else None,
        vectors.values if vectors else None,
        out=out,
        class_names=names or None,
        neighbours=options.neighbours,
        k_max=options.k_max,
        seed=options.seed,
        name=name,
        facts={"command": shlex.join([*PROGRAM.split(), *arguments]), "seed": options.seed, **machine()},
    )
    for sentence in sentences(found):
        console.print(f"- {escape(sentence)}", highlight=False, soft_wrap=True)
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def parse_arrays(arguments: Sequence[str]) -> Arrays:
    """Options of `audit arrays`.

    Raises:
        ConfigError: if there is nothing to look at beside labels, or a number is out of range.
    """
    options = tyro.cli(Arrays, args=arguments, prog=PROGRAM, description=_PREAMBLE)
    if options.probabilities is None and options.features is None:
        raise ConfigError("there are labels only; give --probabilities of a model, or --features, or both")
    for option, least in (("neighbours", 1), ("k_max", 2)):
        if getattr(options, option) < least:
            raise ConfigError(f"--{option.replace('_', '-')} is {getattr(options, option)}; give at least {least}")
    return options


def _columns(columns: Sequence[str], labels: object) -> tuple[str, ...]:
    """The columns' names, where the labels are such words; numbers name columns by their order."""
    import numpy as np

    words = np.asarray(labels)
    return (
        tuple(columns)
        if words.dtype.kind in "OSU" and set(map(str, np.unique(words.astype(str)))) <= set(columns)
        else ()
    )
