"""`holdfast audit multimodal`: which visible things does a vision-language model lean on? And a person's verdict."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.cli.commands.audit.subject import parse_audit, whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.clip import DEFAULT_CLIP_DATA, FOR_CLIP, bar, load_subject
from holdfast.cli.common.tables import plain_table
from holdfast.data.catalog import data_root
from holdfast.errors import ConfigError, counted
from holdfast.files import write_atomically
from holdfast.multimodal.audit.detection import Finding, Order
from holdfast.multimodal.audit.detectors import THRESHOLD
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.provenance import machine
from holdfast.report.html.markup import DASH, number, percent

if TYPE_CHECKING:
    from holdfast.multimodal import TwoTowerModel
    from holdfast.multimodal.audit.task_detections import TaskDetections
    from holdfast.multimodal.tasks.task import ClipData, ClipTask

PROGRAM = "holdfast audit multimodal"
_PREAMBLE = """Find the visible things that a vision-language model leans on, and show them to a person.

The model classifies the images by the names of their classes. For every class and every word, the accuracy on images
that show the word is compared with that on images that don't. What an image shows comes from a detector and a
vocabulary, from a table of sightings, or from the data set's own labels. Open audit.html in a browser, decide, and
write it down with `holdfast audit verdict`; `holdfast fit --task clip --audit FOLDER` removes what was called spurious.
Beside the page are findings.json, and seen.csv with all sightings.

Data sets: {data}; or a folder with images and a metadata.csv.

Towers: shapes and emoji (made here, a minute or two), open_clip:RN50:openai and the like, or CLIP of the transformers
library by its name or folder.

Examples: `holdfast audit multimodal`; `holdfast audit multimodal --data photos/ --folder.class-names gull crow --tower
openai/clip-vit-base-patch32 --detector google/owlvit-base-patch32 --vocabulary words.txt`; `holdfast audit multimodal
--data waterbirds --seen sightings.csv`."""


@dataclass(frozen=True)
class Multimodal:
    """What to audit, how, and where to write.

    Attributes:
        data: a data set's name, or a folder with images and a metadata.csv.
        tower: the model to audit; the data set's usual one by default.
        part: which part of the data is looked at.
        seen: a table of sightings, with the columns id and word, and any of part, score, left, top, right, bottom.
        detector: OWL-ViT by its name on the hub or from a folder, to look for the words of the vocabulary.
        vocabulary: a file with a word per line, or Visual Genome's synsets; those below the data root by default.
        threshold: least score of a sighting.
        min_support: images of a class that must show a word.
        top: words of a class that are kept.
        order: by what they are chosen within a class.
        images: how many to show with a word, and how many without.
        templates: a file with sentences to fill with names, one per line; the task's own by default.
        seed: of a tower that is made here, and of the images that are shown.
        device: where to compute; auto for CUDA or MPS where there is some.
        threads: CPU threads of torch.
        out: where the page goes; audits/DATA-multimodal by default.
        data_root: where data sets and towers live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
    """

    data: str = DEFAULT_CLIP_DATA
    tower: str | None = None
    part: Literal["train", "validation", "test"] = "train"
    seen: Path | None = None
    detector: str | None = None
    vocabulary: Path | None = None
    threshold: float = THRESHOLD
    min_support: int = 10
    top: int = 5
    order: Order = "delta"
    images: int = 6
    templates: Path | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    out: Path | None = None
    data_root: Path | None = None


def audit_multimodal(arguments: list[str]) -> None:
    """Rank attributes, write the page and the files beside it, and show the ranking.

    Args:
        arguments: as typed.
    """
    from holdfast.multimodal.audit.evidence import gather_evidence
    from holdfast.multimodal.audit.reviews import FINDINGS, SEEN, write_audited
    from holdfast.multimodal.audit.task_detections import write_detections
    from holdfast.primitives.threads import torch_threads
    from holdfast.report.pages.audit_multimodal import write_evidence

    (options, data), console = parse_multimodal(arguments), Console()
    root, name = data_root(options.data_root), Path(options.data).name
    out = options.out or free_place("audits", f"{name}-multimodal")
    with whole_folder(out) as folder, torch_threads(options.threads):
        tower, task = load_subject(
            data, options.tower, root, options.templates, seed=options.seed, device=options.device, console=console
        )
        seen = _sightings(options, task, tower, root, console)
        evidence = gather_evidence(
            tower,
            task,
            seen,
            part=options.part,
            threshold=options.threshold,
            min_support=options.min_support,
            top=options.top,
            order=options.order,
            images=options.images,
            seed=options.seed,
        )
        examples = task.part(options.part)
        write_atomically(folder / FINDINGS, findings_json(evidence.findings, examples.class_names).encode())
        write_detections(folder / SEEN, seen, task)
        write_audited(folder, task)
        write_evidence(
            folder / "audit.html",
            evidence,
            examples,
            tower.preprocessing,
            name=name,
            about=f"tower {options.tower or data.tower}, zero-shot on {counted(len(examples), 'image')}",
            folder=out,
            facts={
                "command": shlex.join([*PROGRAM.split(), *arguments]),
                "images": number(len(examples)),
                "words": number(len(seen.words)),
                "zero-shot accuracy": percent(
                    float((evidence.predictions.predicted == examples.labels).float().mean())
                ),
                "least support": options.min_support,
                "seed": options.seed,
                **machine(),
            },
        )
    console.print(findings_table(evidence.findings, examples.class_names, f"{name}: what the accuracy depends on"))
    console.print(
        f"Look at the images before you decide, then: [bold]holdfast audit verdict {out} --label ... --word ...[/]",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Page: [bold]{out / 'audit.html'}[/]", highlight=False, soft_wrap=True)


def findings_json(findings: Sequence[Finding], names: Sequence[str]) -> str:
    """Findings by the names of their classes, in their order."""
    records = []
    for one in findings:
        known = one.to_json()
        confused = None if one.confused is None else names[one.confused]
        records.append({"class": names[known.pop("label")], **known, "confused": confused})
    return json.dumps(records, indent=1) + "\n"


def findings_table(findings: Sequence[Finding], names: Sequence[str], title: str) -> Table:
    """The findings for a terminal."""
    right = ("with it", "without it", "discrepancy", "95% interval", "information")
    table = plain_table(title, ("class", "attribute", *right, "taken for"), right=right)
    table.columns[1].no_wrap = True
    for one in findings:
        low, high = one.interval
        table.add_row(
            escape(names[one.label]),
            escape(one.word),
            f"{percent(one.accuracy_with)} of {number(one.support)}",
            f"{percent(one.accuracy_without)} of {number(one.absent)}",
            f"{100 * one.delta:+.1f}",
            f"{100 * low:+.1f} to {100 * high:+.1f}",
            f"{one.mutual_information:.3f}",
            DASH if one.confused is None else escape(names[one.confused]),
        )
    return table


def parse_multimodal(arguments: Sequence[str]) -> tuple[Multimodal, ClipData]:
    """Options of `audit multimodal`; the fields of the chosen data set are options too.

    Raises:
        ConfigError: if a data set is unknown, or options contradict each other.
    """
    about = _PREAMBLE.format(data=", ".join(CLIP_DATA))
    options, _, data = parse_audit(
        Multimodal,
        arguments,
        CLIP_DATA,
        DEFAULT_CLIP_DATA,
        program=PROGRAM,
        about=about,
        check=_check,
        purpose=FOR_CLIP,
    )
    return options, data


def _check(options: Multimodal) -> None:
    if options.seen is not None and options.detector is not None:
        raise ConfigError("--seen says what the images show, so --detector would change nothing; leave one out")
    if options.vocabulary is not None and options.detector is None:
        raise ConfigError("--vocabulary is what a detector looks for; give --detector too")


def _sightings(
    options: Multimodal, task: ClipTask, tower: TwoTowerModel, root: Path, console: Console
) -> TaskDetections:
    from holdfast.multimodal.audit.detectors import load_owl_vit
    from holdfast.multimodal.audit.running_detectors import read_vocabulary, run_detector
    from holdfast.multimodal.audit.task_detections import TaskDetections, read_detections

    if options.seen is not None:
        return read_detections(options.seen, task)
    if options.detector is None:
        return TaskDetections.known(task)
    words = read_vocabulary(options.vocabulary, root, task.wording.class_names)
    detector = load_owl_vit(options.detector, threshold=options.threshold)
    with bar(console, f"looking for {counted(len(words), 'word')}", "images") as show:
        return run_detector(task, tower.preprocessing, detector, words, show)
