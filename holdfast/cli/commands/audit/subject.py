"""What audits share: what they look at, and a folder that appears as a whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.data import DataSet, data_root
from holdfast.errors import ConfigError
from holdfast.training import Training


@dataclass(frozen=True)
class Subject:
    """What is audited.

    Attributes:
        name: of the data set.
        data: the data set with its options.
        model: the model's name.
        start: weights that training starts from, where the recipe has some.
        settings: how to train; its epochs are those that a schedule spans.
        data_root: where data sets live.
    """

    name: str
    data: DataSet
    model: str
    start: str | None
    settings: Training
    data_root: Path


def subject_of_data(name: str, data: DataSet, **asked: Any) -> Subject:
    """What is audited by a data set's recipe.

    Args:
        name: of the data set.
        data: the data set with its options.
        asked: ``model``, ``data_root`` and fields of `Training`; those that are None follow the recipe.
    """
    recipe: dict[str, Any] = dict(data.recipe)
    model, start = recipe.pop("model", "mlp"), recipe.pop("weights", None)
    own, root = asked.pop("model"), asked.pop("data_root")
    settings = replace(Training(**recipe), **{key: value for key, value in asked.items() if value is not None})
    return Subject(name, data, own or model, start, settings, data_root(root))


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to write to that appears at `out` when all is written, or not at all."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"there is something at {out} already; choose another place with --out")
    final = out.resolve()
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"the folder {out} can't be made ({error.strerror}); choose another with --out") from error
    try:
        yield part
        part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
