"""Which column says what: as the user said, else as its layout says, else by its name and type, and that is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.data.own.columns import is_text
from holdfast.data.own.image_folders import is_image
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.source import PARTS, Source
from holdfast.data.own.values import attribute_of, plain
from holdfast.data.own.words import some
from holdfast.errors import DataError, nearest

#: What the inputs are made of.
Kind = Literal["image", "text", "table", "array"]

_LABELS = ("label", "labels", "y", "target", "class", "category", "class_label", "outcome")
_ATTRIBUTES = (
    "attribute",
    "attributes",
    "place",
    "a",
    "background",
    "confounder",
    "environment",
    "sex",
    "gender",
    "race",
)
_SPLITS = ("split", "partition", "fold", "set", "subset")
_IMAGES = ("image", "img", "img_filename", "image_path", "file_name", "filename", "filepath", "file", "path")
_TEXTS = ("text", "sentence", "review", "comment", "content", "comment_text", "document", "body", "question")
_IDS = ("", "unnamed: 0", "id", "img_id", "uid", "uuid", "example_id", "row_id", "index", "rownames")
_LOOKED_AT = 500
_FEW = 8  # values of an attribute, whatever the number of rows
#: What is said instead of a column where none is to be guessed.
NONE = "none"
_TEXT_LENGTH = 30  # characters; categories are shorter on average


@dataclass(frozen=True)
class Roles:
    """The columns by what they say.

    Attributes:
        kind: what the inputs are.
        inputs: the columns they are made of; none where the inputs are an array.
        label: the class; None where the rows have none, as new data may.
        attributes: what groups are made of besides the class.
        client: the client of each row.
        split: the part of each row.
        time: when each row was made.
        id: the name of each row.
        notes: what was guessed and what was left out, a line each.
    """

    kind: Kind
    inputs: tuple[str, ...]
    label: str | None
    attributes: tuple[str, ...] = ()
    client: str | None = None
    split: str | None = None
    time: str | None = None
    id: str | None = None
    notes: tuple[str, ...] = ()


def assign(source: Source, options: ReadingOptions, *, labelled: bool = True) -> Roles:
    """Give each column its role.

    Args:
        source: the rows.
        options: what the user said.
        labelled: refuse rows without a label column.

    Raises:
        DataError: if a named column isn't there, or there is none that could be the label or the inputs.
    """
    notes: list[str] = []
    unwanted = {role for role in ("split", "id") if getattr(options, role) == NONE and NONE not in source.columns}
    if options.attribute == (NONE,) and NONE not in source.columns:
        unwanted.add("attribute")
        options = replace(options, attribute=())
    if "split" in unwanted:
        options = replace(options, split=None)
    if "id" in unwanted:
        options = replace(options, id=None)
    attributes = tuple(name.rpartition(":")[0] if _is_cut(name, source) else name for name in options.attribute)
    given = {
        "label": options.label, "text": options.text, "image": options.image, "client": options.client,
        "split": options.split, "time": options.time, "id": options.id,
    }  # fmt: skip
    named = [*(name for name in given.values() if name is not None), *attributes, *options.features]
    for name in named:
        _expect(name, source)
    taken = set(named)

    def guess(role: str, names: tuple[str, ...]) -> str | None:
        if given.get(role) is not None or role in unwanted:
            return given.get(role)
        free = {str(name).lower(): str(name) for name in reversed(source.columns) if name not in taken}
        column = source.roles.get(role) if source.roles.get(role) not in taken else None
        column = column or next((free[name] for name in names if name in free), None)
        if column is not None:
            taken.add(column)
            if column not in source.roles.values():
                notes.append(f"{role}: column {column!r}, by its name")
        return column

    label = guess("label", _LABELS)
    if label is None and labelled:
        raise _without_label(source)
    split = options.split
    if split is None and options.time is None and source.parts is None:
        split = guess("split", _SPLITS)
        if split is not None and not _says_parts(source.table[split]):
            taken.discard(split)
            notes.pop()
            split = None
        if split is None and "split" not in unwanted:
            free = (name for name in source.columns if name not in taken)
            split = next((name for name in free if _names_parts(source.table[name])), None)
            if split is not None:
                taken.add(split)
                notes.append(f"split: column {split!r}, whose values name parts (--split none makes another split)")
    row_id = guess("id", _IDS)
    if row_id is not None and source.table[row_id].null_count == len(source):  # what a comma at each line's end makes
        notes.pop()
        row_id = None
    if not attributes:
        one = guess("attribute", tuple(name for name in _ATTRIBUTES if _may_be_attribute(name, source)))
        attributes = () if one is None else (one,)
    kind, inputs = _inputs(source, options, taken, notes)
    return Roles(kind, inputs, label, attributes, options.client, split, options.time, row_id, tuple(notes))


def _inputs(source: Source, options: ReadingOptions, taken: set[str], notes: list[str]) -> tuple[Kind, tuple[str, ...]]:
    """What the inputs are, and their columns."""
    if source.inputs is not None:
        return "array", ()
    said: dict[Kind, tuple[str, ...]] = {
        "table": options.features,
        "image": () if options.image is None else (options.image,),
        "text": () if options.text is None else (options.text,),
    }
    for kind, columns in said.items():
        if columns:
            return kind, columns
    free = [name for name in source.columns if name not in taken]
    image = source.roles.get("image") or _named(free, _IMAGES, source, _is_image_column)
    if image is None and source.folder is not None:
        image = next((name for name in free if _is_image_column(source.table[name])), None)
    if image:
        if image not in source.roles.values():
            notes.append(f"image: column {image!r}, whose values name image files")
        return "image", (image,)
    if source.has_images:
        raise DataError(
            f"{source.place} has images, and no column of its table names them (it has "
            f"{some(map(repr, source.columns), 12)}); say which does with --image, or give the path of the table itself"
        )
    text = _named(free, _TEXTS, source, is_text) or next((name for name in free if _is_prose(source.table[name])), None)
    if text:
        others = [name for name in free if name != text]
        left = f"; left out: {some(others)}" if others else ""
        notes.append(f"text: column {text!r}{left}")
        return "text", (text,)
    if not free:
        raise DataError(
            f"{source.place} has no column left for the inputs, of {some(map(repr, source.columns), 12)}; name them "
            "with --features, --text or --image"
        )
    return "table", tuple(free)


def _without_label(source: Source) -> DataError:
    """What is wrong where no column can be the class."""
    if source.columns == [source.roles.get("image")]:
        return DataError(
            f"{source.place} has images, and nothing that says their classes; make a folder per class, or add a "
            "metadata.csv with a column for the class"
        )
    unnamed = "; its first line seems to be data: add one that names the columns"
    described = "; the table that describes its images is read, and class folders are not" * source.has_images
    return DataError(
        f"{source.place} has no column that is called {_LABELS[0]}, {_LABELS[2]} or the like; say which is the "
        f"class with --label, of {some(map(repr, source.columns), 12)}"
        + (unnamed if any(map(_is_number, source.columns)) else described)
    )


def _expect(name: str, source: Source) -> None:
    if name not in source.columns:
        close = nearest(name, source.columns)
        clause = close if "did you mean" in close else f"; it has {some(map(repr, source.columns), 12) or 'none'}"
        raise DataError(f"{source.place} has no column {name!r}{clause}")


def _is_number(name: str) -> bool:
    try:
        return bool(np.isfinite(float(name)))
    except ValueError:
        return False


def _is_cut(name: str, source: Source) -> bool:
    """Whether an attribute is given as ``age:4``, to be cut at its quantiles."""
    column, _, pieces = name.rpartition(":")
    return name not in source.columns and bool(column) and pieces.isdecimal()


def _named(free: list[str], names: tuple[str, ...], source: Source, fits: object) -> str | None:
    lowered = {name.lower(): name for name in reversed(free)}
    candidates = (lowered[name] for name in names if name in lowered)
    return next((name for name in candidates if fits(source.table[name])), None)  # type: ignore[operator]


def _first_values(column: pa.ChunkedArray) -> list[str]:
    return [str(value) for value in plain(column.slice(0, _LOOKED_AT)).to_pylist() if value is not None]


def _is_image_column(column: pa.ChunkedArray) -> bool:
    if pa.types.is_struct(column.type):  # how the hub keeps images: bytes and a path
        return {field.name for field in column.type} == {"bytes", "path"}
    values = _first_values(column) if is_text(column) else []
    images = [is_image(value.rpartition("/")[2]) for value in values[:50]]
    return 2 * sum(images) > len(images)  # a few wrong paths are told as such, and don't make it another column


def _is_prose(column: pa.ChunkedArray) -> bool:
    values = _first_values(column) if is_text(column) else []
    if not values:
        return False
    return sum(map(len, values)) / len(values) > _TEXT_LENGTH and len(set(values)) > len(values) / 2


def _may_be_attribute(name: str, source: Source) -> bool:
    """Whether a column of that name, however it is spelled, could be one; a guess must not make data unreadable."""
    for column in source.columns:
        if column.lower() == name:
            try:
                values = attribute_of(source.table[column], column, source.place).names
            except (DataError, pa.ArrowException):
                return bool(pa.types.is_list(source.table[column].type))
            return len(values) <= max(_FEW, len(source) // 3)  # else groups are too small to be split
    return True


def _names_parts(column: pa.ChunkedArray) -> bool:
    """Whether a column of words can hardly be anything but the split, whatever it is called."""
    if not is_text(column):
        return False
    values = {str(value).strip().lower() for value in pc.unique(column).to_pylist()}
    return "train" in values and len(values) > 1 and _says_parts(column)


def _says_parts(column: pa.ChunkedArray) -> bool:
    if not (is_text(column) or pa.types.is_integer(column.type)):
        return False
    values = {str(value).strip().lower() for value in pc.unique(column).to_pylist() if value is not None}
    return bool(values) and values <= PARTS.keys()
