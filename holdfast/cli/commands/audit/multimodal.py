"""`holdfast audit multimodal`: which visible things does a vision-language model lean on? And a person's verdict."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.cli.commands.audit.subject import whole_folder
from holdfast.cli.common.arguments import free_place
from holdfast.cli.common.clip import DEFAULT_CLIP_DATA, bar, data_field, load_subject, named_clip_data
from holdfast.data import data_root
from holdfast.errors import ConfigError
from holdfast.files import write_atomically
from holdfast.multimodal.audit.detection import Finding, Order
from holdfast.multimodal.audit.detectors import THRESHOLD, load_owl_vit
from holdfast.multimodal.audit.evidence import gather_evidence
from holdfast.multimodal.audit.reviews import FINDINGS, SEEN, Decision, Review, decide, write_audited
from holdfast.multimodal.audit.running_detectors import read_vocabulary, run_detector
from holdfast.multimodal.audit.task_detections import TaskDetections, read_detections, write_detections
from holdfast.multimodal.backends import TwoTowerModel
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.multimodal.tasks.task import ClipData, ClipTask
from holdfast.primitives.threads import torch_threads
from holdfast.provenance import machine
from holdfast.report.html.markup import DASH, counted, number, percent
from holdfast.report.pages.audit_multimodal import write_evidence

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
        device: where to compute.
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


def multimodal(asked: Multimodal, data: ClipData, typed: Sequence[str]) -> None:
    """Rank attributes, write the page and the files beside it, and show the ranking.

    Args:
        asked: how to look, and where to write.
        data: the data set with its options.
        typed: the arguments, for the record.
    """
    console, root = Console(), data_root(asked.data_root)
    name = Path(asked.data).name
    out = asked.out or free_place("audits", f"{name}-multimodal")
    with whole_folder(out) as folder, torch_threads(asked.threads):
        tower, task = load_subject(
            data, asked.tower, root, asked.templates, seed=asked.seed, device=asked.device, console=console
        )
        seen = _sightings(asked, task, tower, root, console)
        evidence = gather_evidence(
            tower,
            task,
            seen,
            part=asked.part,
            threshold=asked.threshold,
            min_support=asked.min_support,
            top=asked.top,
            order=asked.order,
            images=asked.images,
            seed=asked.seed,
        )
        examples = task.part(asked.part)
        write_atomically(folder / FINDINGS, findings_json(evidence.findings, examples.class_names).encode())
        write_detections(folder / SEEN, seen, task)
        write_audited(folder, task)
        write_evidence(
            folder / "audit.html",
            evidence,
            examples,
            tower.preprocessing,
            name=name,
            about=f"tower {asked.tower or data.tower}, zero-shot on {counted(len(examples), 'image')}",
            folder=out,
            facts={
                "command": shlex.join([*PROGRAM.split(), *typed]),
                "images": number(len(examples)),
                "words": number(len(seen.words)),
                "zero-shot accuracy": percent(
                    float((evidence.predictions.predicted == examples.labels).float().mean())
                ),
                "least support": asked.min_support,
                "seed": asked.seed,
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


def verdict(
    folder: tyro.conf.Positional[Path], *, label: str, word: str, verdict: Decision, reviewer: str, reason: str
) -> None:
    """Write down what a person decided about a finding; without a verdict nothing is mitigated.

    Args:
        folder: of the audit.
        label: name of the class.
        word: the attribute.
        verdict: spurious, a healthy part of the class, or unsure.
        reviewer: who decides.
        reason: why.
    """
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    decided = decide(folder, Review(label, word, verdict, reviewer, reason, now))
    table = _table(f"{folder}: verdicts", ("class", "attribute", "verdict", "reviewer", "reason"), right=())
    for one in decided:
        table.add_row(*(escape(text) for text in (one.label, one.word, one.verdict, one.reviewer, one.reason)))
    Console().print(table)
    if any(one.verdict == "spurious" for one in decided):
        Console().print(f"Next: [bold]holdfast fit --task clip --audit {folder}[/]", highlight=False, soft_wrap=True)


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
    table = _table(title, ("class", "attribute", *right, "taken for"), right=right)
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
    first, _ = tyro.cli(Multimodal, args=arguments, prog=PROGRAM, add_help=False, return_unknown_args=True)
    if first.seen is not None and first.detector is not None:
        raise ConfigError("--seen says what the images show, so --detector would change nothing; leave one out")
    if first.vocabulary is not None and first.detector is None:
        raise ConfigError("--vocabulary is what a detector looks for; give --detector too")
    data_class, folder = named_clip_data(first.data)
    parts: list[tuple[str, Any, Any]] = [
        ("data", Annotated[data_class, tyro.conf.arg(name=data_class.name)], data_field(data_class, folder)),
        ("asked", Annotated[Multimodal, tyro.conf.arg(name="")], field(default=Multimodal())),
    ]
    parsed: Any = tyro.cli(make_dataclass("Arguments", parts), args=arguments, prog=PROGRAM, description=about)
    return parsed.asked, parsed.data


def _sightings(asked: Multimodal, task: ClipTask, tower: TwoTowerModel, root: Path, console: Console) -> TaskDetections:
    if asked.seen is not None:
        return read_detections(asked.seen, task)
    if asked.detector is None:
        return TaskDetections.known(task)
    words = read_vocabulary(asked.vocabulary, root, task.wording.class_names)
    detector = load_owl_vit(asked.detector, threshold=asked.threshold)
    with bar(console, f"looking for {counted(len(words), 'word')}", "images") as told:
        return run_detector(task, tower.preprocessing, detector, words, told)


def _table(title: str, columns: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column == "attribute")
    return table
