"""Hand a trained model on, and see that what was written says the same as the model.

A batch of random inputs, of other sizes than the one that was traced, goes through the model and through the file as
another program loads it. Where outputs differ by more than `TOLERANCE` nothing is left behind.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from holdfast.errors import CheckpointError, ConfigError, nearest
from holdfast.files import written_whole
from holdfast.integrations.export.formats import FORMATS, Format
from holdfast.integrations.export.tracing import model_outputs, random_batch
from holdfast.training.model_card import ModelCard
from holdfast.training.trained import TrainedModel

#: Largest difference of an output, as a share of the largest output where that is above one.
TOLERANCE = 1e-5

_CHECKED = (1, 5)  # examples; a model is traced with another number
_OF_FOLDER = {"weights.safetensors", "model.json", "schema.json"}


@dataclass(frozen=True)
class Exported:
    """A model that was written.

    Attributes:
        difference: the largest one between its outputs and the model's; None where nothing here can run the format.
        card: what it takes and gives.
    """

    difference: float | None
    card: ModelCard


def export_model(
    trained: TrainedModel, to: str, out: Path, *, overwrite: bool = False, attached: Mapping[str, str] | None = None
) -> Exported:
    """Write a trained model in a format of `FORMATS`.

    Args:
        trained: the model.
        to: the format.
        out: the file, or the folder for safetensors.
        overwrite: replace what an export left there before.
        attached: texts that belong to the model by name, such as its ``schema.json``: files of a folder, entries inside
            the other formats.

    Returns:
        What was written. A model whose texts differ in length, but whose code can't be traced for any length, is
        written for the largest.

    Raises:
        ConfigError: if the format is unknown, the model can't be exported, or there is something at `out`.
        CheckpointError: if the outputs differ; nothing is left at `out` then.
        MissingDependencyError: if a package for the format is missing.
    """
    form = check_export_place(to, out, overwrite=overwrite)
    try:
        return _exported(trained, form, out, attached or {})
    except (ConfigError, CheckpointError):
        if not trained.card.is_open:
            raise
        return _exported(replace(trained, card=trained.card.closed()), form, out, attached or {})


def _exported(trained: TrainedModel, form: Format, out: Path, attached: Mapping[str, str]) -> Exported:
    with written_whole(out) as place:
        form.write(trained, place, attached)
        difference = _checked(trained, form, place)
        if out.is_dir():
            shutil.rmtree(out.resolve())
    return Exported(difference, trained.card)


def check_export_place(to: str, out: Path, *, overwrite: bool) -> Format:
    """The format, if it can be written to `out`.

    Raises:
        ConfigError: if not.
    """
    if to not in FORMATS:
        raise ConfigError(f"there is no format {to!r}{nearest(to, FORMATS)}")
    form = FORMATS[to]
    if form.suffix and out.suffix != form.suffix:
        raise ConfigError(f"{out} should end in {form.suffix} for --to {to}; choose such a name with --out")
    if not out.exists():
        return form
    if out.is_dir() != (not form.suffix):
        kind = "folder" if out.is_dir() else "file"
        raise ConfigError(f"{out} is a {kind}, and --to {to} writes something else there; choose another --out")
    if not overwrite:
        raise ConfigError(f"{out} already exists; choose another --out, or say --overwrite")
    if out.is_dir() and (foreign := sorted({path.name for path in out.iterdir()} - _OF_FOLDER)):
        raise ConfigError(f"{out} holds other things than an export, such as {foreign[0]}; choose another --out")
    return form


def _checked(trained: TrainedModel, form: Format, place: Path) -> float | None:
    if not form.runs_here():
        return None
    worst = 0.0
    for size in _CHECKED:
        batch = random_batch(trained.card, size, seed=size, shorter=size > 1)
        expected = model_outputs(trained.model, batch)
        try:
            found = form.run(trained, place, batch)
        except Exception as error:  # whatever the other program says of a file that it can't run
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"what was exported can't be run on {size} examples ({reason}); nothing was written; another format "
                "may do"
            ) from error
        worst = max(worst, difference_of(expected, found))
    if worst > TOLERANCE:
        raise CheckpointError(
            f"the outputs of what was exported differ from the model's by {worst:.2g}, more than {TOLERANCE:g}; "
            "nothing was written; another format may do"
        )
    return worst


def difference_of(expected: Tensor, found: Tensor) -> float:
    """The largest difference, as a share of the largest expected value where that is above one.

    It is infinite where shapes differ, or where an output is no number.
    """
    if expected.shape != found.shape or not (expected.isfinite().all() and found.isfinite().all()):
        return float("inf")
    scale = max(1.0, float(expected.abs().max()))
    return float((expected.double() - found.double()).abs().max()) / scale
