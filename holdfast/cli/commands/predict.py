"""`holdfast predict`: what the model of a run says of examples, as a file, and how every group fares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from holdfast.cli.common.scoring import Part, ScoringRequest, scored
from holdfast.cli.common.trained import file_name

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.training.prediction import ClassScores, PredictionData


@dataclass(frozen=True)
class Predict:
    """Predict with the model of a run, write a row per example, and report on every group where labels are known.

    The table has id, label and group (where known), the predicted class and a probability per class, p_CLASS; of more
    than 100 classes the five most likely ones. It is written as a whole or not at all.

    Examples: `holdfast predict runs/mine`; `holdfast predict runs/mine new.csv`; `holdfast predict runs/mine
    coloured-digits --part validation --out guesses.csv`; `holdfast predict runs/wards --client ward-1`; `holdfast
    predict runs/wards --client all`; `holdfast predict node-state --client all`, on a Flower node.

    Attributes:
        run: a run directory of `holdfast fit` or `holdfast federate`, or the state folder of a Flower node, which
            has the data and the personal models of its own clients.
        data: other data of your own, a file or folder whose columns are called as those of the training data (labels
            may be missing), or a data set's name; the run's own data, with its options, by default.
        out: the file, .parquet or .csv; predictions-DATA-PART.parquet in the run directory by default.
        part: which part of the data; all of a file or folder is predicted.
        client: predict with this client's personal model, on its own examples where the data says whose they are; `all`
            predicts each example with the model of its own client. The shared model by default.
        method: whose personal models, where the federation has several: ditto, finetuning, ...
        batch_size: examples per forward pass.
        device: where to compute; auto takes CUDA, else MPS, else the CPU.
        all_probabilities: a column for every class, however many there are.
        best_so_far: of a run that is not finished, take the best epoch so far.
        overwrite: replace the file if it is there.
        data_root: where data sets live; as the run was started by default.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    out: Path | None = None
    part: Part = "test"
    client: str | None = None
    method: str | None = None
    batch_size: int = 512
    device: str = "cpu"
    all_probabilities: bool = False
    best_so_far: bool = False
    overwrite: bool = False
    data_root: Path | None = None


def predict(options: Predict, console: Console) -> None:
    """Predict as `options` say, write the table and show how every group fares."""
    from holdfast.models.devices import find_device
    from holdfast.training.prediction_table import check_table_place, prediction_table, write_table

    request = ScoringRequest(
        options.run, options.data, options.part, options.client, options.method, options.batch_size, options.device,
        options.all_probabilities, options.best_so_far, options.data_root,
    )  # fmt: skip
    request.check()
    device, sources = find_device(options.device), request.sources()
    place = options.out or sources.folder / (file_name("predictions", sources.name, *_asked(options)) + ".parquet")
    check_table_place(place, overwrite=options.overwrite)
    scores, data, class_names = scored(sources, request, device)
    write_table(prediction_table(scores, data, class_names), place)
    _show(scores, data, f"{sources.folder.name}: {sources.name}, {options.part}", place, console)


def _asked(options: Predict) -> tuple[str | None, ...]:
    return options.part, options.client, options.method


def _show(scores: ClassScores, data: PredictionData, title: str, place: Path, console: Console) -> None:
    from rich.markup import escape

    from holdfast.errors import counted
    from holdfast.training.prediction import report_of

    report = report_of(scores, data)
    if report is not None:
        console.print(report.table(title))
    for note in data.notes:
        console.print(f"[yellow]{escape(note)}[/]", highlight=False, soft_wrap=True)
    console.print(f"{counted(len(data.examples), 'example')} in [bold]{place}[/]", highlight=False, soft_wrap=True)


def main(arguments: list[str]) -> int:
    """Run the command."""
    from rich.console import Console

    predict(tyro.cli(Predict, args=arguments, prog="holdfast predict"), Console())
    return 0
