"""What audits share: what they look at, and a folder that appears as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tyro

from holdfast.cli.common.sections import Section, data_choice, parse_sections
from holdfast.data.catalog import data_root
from holdfast.errors import ConfigError
from holdfast.files import written_whole
from holdfast.lazy import LazyTable
from holdfast.models import ModelSpec
from holdfast.models.devices import find_device
from holdfast.training.settings import Training

if TYPE_CHECKING:
    from holdfast.data import DataSet, Examples

Options = TypeVar("Options")
Data = TypeVar("Data")


@dataclass(frozen=True)
class Subject:
    """What is audited.

    Attributes:
        name: of the data set.
        data: the data set with its options.
        model: the model's name.
        model_args: arguments of the model's own.
        head: name of its last linear layer, where it must be given.
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
    model_args: Mapping[str, Any] = field(default_factory=dict)
    head: str | None = None

    def spec(self, train: Examples, weights: Path | str | None = None) -> ModelSpec:
        """What the model for these examples is made from, with other weights to start from where they are given."""
        start = None if weights is None else str(weights)
        args, seed = self.model_args, self.settings.seed
        return ModelSpec(self.model, train.input_shape, train.n_classes, args, seed, start or self.start, self.head)


def subject_of_data(name: str, data: DataSet, **given: Any) -> Subject:
    """What is audited by a data set's recipe.

    Args:
        name: of the data set.
        data: the data set with its options.
        given: ``model``, ``model_args``, ``head``, ``data_root`` and fields of `Training`; those that are None follow
            the recipe.
    """
    recipe: dict[str, Any] = dict(data.training_recipe())
    model, start = recipe.pop("model", "mlp"), recipe.pop("weights", None)
    own, root = given.pop("model"), given.pop("data_root")
    args, head = given.pop("model_args"), given.pop("head")
    start = None if ":" in (own or "") else start  # the recipe's are for the recipe's model
    settings = replace(Training(**recipe), **{key: value for key, value in given.items() if value is not None})
    find_device(settings.device)
    return Subject(name, data, own or model, start, settings, data_root(root), args, head)


def parse_audit(
    cls: type[Options],
    arguments: Sequence[str],
    table: LazyTable[type[Data]],
    default: str,
    *,
    program: str,
    about: str,
    check: Callable[[Options], None] = lambda options: None,
    purpose: str = "",
) -> tuple[Options, str, Data]:
    """Options of an audit; the fields of the data set that they name are options too.

    Args:
        cls: the audit's own options, a dataclass with the field ``data``.
        arguments: as typed.
        table: data sets by name.
        default: the one to take where none is named.
        program: the command, for its help.
        about: what stands above the options in its help.
        check: refuses options that contradict each other, before the data set is looked for.
        purpose: what the data sets are for, in the error message.

    Returns:
        The options, the data set as it was named, and the data set with its own options.
    """
    first, _ = tyro.cli(cls, args=arguments, prog=program, add_help=False, return_unknown_args=True)
    check(first)
    name: str = getattr(first, "data") or default  # noqa: B009
    chosen = data_choice(name, table, arguments, purpose=purpose)
    parsed = parse_sections(
        arguments, {"data": chosen.section, "options": Section(cls, cls)}, program=program, about=about
    )
    return parsed["options"], name, chosen.made(parsed["data"])


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to write to that appears at `out` when all is written, or not at all."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another place with --out")
    with written_whole(out) as folder:
        folder.mkdir()
        yield folder
