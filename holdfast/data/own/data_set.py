"""A user's own data where a data set's name may stand: ``--data wards.csv``, `holdfast.data.read`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.data.catalog import DataSet, configured_options
from holdfast.data.own.options import HUB, ReadingOptions

if TYPE_CHECKING:
    from holdfast.data.examples import Splits


@dataclass(frozen=True)
class OwnData(DataSet):
    """Data of your own, at a path or on the hub.

    Attributes:
        path: a file, a folder, or hf:NAME.
        reading: which column says what, and how inputs are made.
    """

    name = "own"
    summary = "your own data: a table, a folder of images, texts, arrays, or a data set of the hub"
    recipe: ClassVar[Any] = {}

    path: str
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def training_recipe(self) -> Mapping[str, object]:
        """A model and settings that suit images, texts, a table or arrays."""
        from holdfast.data.own.reading import recipe_for  # noqa: PLC0415 - which reads files: help pages do without

        return recipe_for(self.path, self.reading)

    def load(self, root: Path) -> Splits:
        """Read and check it; `root` isn't looked at."""
        from holdfast.data.own.python_objects import is_object_name, read_object  # noqa: PLC0415
        from holdfast.data.own.reading import read_rows  # noqa: PLC0415

        if is_object_name(self.path):
            return read_object(self.path, self.reading)
        return read_rows(self.path, self.reading).splits(place_name(self.path))


def place_name(place: str) -> str:
    """What data at a place is called: the file's name without its suffix, or the name on the hub."""
    return place.removeprefix(HUB) if place.startswith(HUB) else Path(place).expanduser().resolve().stem


def read(place: str | Path, **options: Any) -> Splits:
    """Read data of your own: a table, a folder of images, texts, arrays, or ``hf:NAME``.

    Args:
        place: where it is.
        options: fields of `ReadingOptions`: ``label="outcome"``, ``attribute=["sex"]``, ...

    Returns:
        Training, validation and test examples; ``notes`` says what was guessed.

    Raises:
        DataError: if it can't be used; the sentence says where and what to do.
        ConfigError: if an option is unknown.
    """
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    for name in ("attribute", "features"):
        if isinstance(given.get(name), str):
            given[name] = (given[name],)
    return OwnData(str(place), configured_options(ReadingOptions, given, "reading data")).load(Path())
