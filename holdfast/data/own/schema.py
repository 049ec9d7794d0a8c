"""What a run remembers of the data it was trained on, so that other data is read in the same way.

Classes, attribute values, how a table is encoded, images resized or texts cut: plain values in ``schema.json``. A model
that has learned from one file predicts for another, with or without labels, and nothing of the first file is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.examples import Examples
from holdfast.data.inputs import Inputs, TensorInputs
from holdfast.data.own import stored
from holdfast.data.own.array_inputs import array_inputs
from holdfast.data.own.columns import arrow_told
from holdfast.data.own.features import TableEncoder, table_inputs, unknown_categories
from holdfast.data.own.hashed_texts import HashedTexts
from holdfast.data.own.image_inputs import image_inputs, reader_for
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.places import read_place
from holdfast.data.own.roles import Kind
from holdfast.data.own.source import Source
from holdfast.data.own.values import (
    Coded,
    attribute_of,
    classes_of,
    coded_values,
    cut,
    memberships_of,
    plain,
)
from holdfast.data.own.words import shortened
from holdfast.data.readers.texts import TextInputs
from holdfast.errors import CheckpointError, DataError, counted

_FORMAT = "holdfast-schema-1"
HASHING = "hashing"


@dataclass(frozen=True)
class AttributeColumn:
    """One of the columns that groups are made of.

    Attributes:
        column: its name.
        values: its values, in order.
        edges: where a numeric column is cut; none for categories.
        lists: whether a row may have several values, so that groups overlap.
    """

    column: str
    values: tuple[str, ...]
    edges: tuple[float, ...] = ()
    lists: bool = False

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AttributeColumn:
        """What `asdict` gave."""
        edges = stored.each(stored.number, values["edges"])
        named = stored.each(stored.text, values["values"])
        if edges and (list(edges) != sorted(set(edges)) or len(named) not in (len(edges) + 1, len(edges) + 2)):
            raise ValueError(f"{len(edges)} edges can't make {len(named)} pieces")
        return cls(stored.text(values["column"]), named, edges, values["lists"] is True)


@dataclass(frozen=True)
class Schema:
    """How rows become examples.

    Attributes:
        kind: what the inputs are.
        inputs: the columns they are made of.
        label: the column with the class.
        classes: the classes, in the order of a model's outputs.
        attributes: what groups are made of besides the class.
        group: a column that names the group outright.
        group_names: its values.
        id: the column with a name for each row.
        client: the column that says whose a row is.
        encoder: of a table.
        image_size: of images.
        tokenizer: of texts.
        max_tokens: of texts.
        shape: of one input, where the inputs are an array.
    """

    kind: Kind
    inputs: tuple[str, ...]
    label: str | None
    classes: tuple[str, ...]
    attributes: tuple[AttributeColumn, ...] = ()
    group: str | None = None
    group_names: tuple[str, ...] = ()
    id: str | None = None
    client: str | None = None
    encoder: TableEncoder | None = None
    image_size: int | None = None
    tokenizer: str = HASHING
    max_tokens: int = 256
    shape: tuple[int, ...] = ()

    # ------------------------------------------------------------------------------------------- rows to examples

    def read(self, place: str, options: ReadingOptions | None = None) -> NewExamples:
        """Read other data as this schema says; labels, attributes and clients where they are there.

        Args:
            place: see `holdfast.data.own.places.read_place`.
            options: how to hold images.

        Raises:
            DataError: if a column that the inputs are made of is missing, or a class is unknown.
        """
        source = read_place(place)
        # A layout may call columns otherwise than the training data did: class folders beside a metadata.csv.
        label = self.label if self.label in source.columns else source.roles.get("label")
        image = source.roles.get("image")
        columns = (image,) if self.kind == "image" and image and self.inputs[0] not in source.columns else self.inputs
        for column in columns:
            if column not in source.columns:
                raise DataError(f"{place} has no column {column!r}, which the model was trained on; add it")
        if self.kind == "array" and source.inputs is None:
            raise DataError(f"{place} has no array of inputs, which the model was trained on; give an npz file")
        with arrow_told(place):
            inputs = self.inputs_of(source, columns, options or ReadingOptions())
            examples = self.examples(source, inputs, self.codes_of(source, label))
            notes = [] if self.encoder is None else unknown_categories(source, self.encoder)
            return NewExamples(examples, label is not None, tuple(notes))

    def inputs_of(self, source: Source, columns: Sequence[str], options: ReadingOptions) -> Inputs:
        """The inputs of all rows of a source.

        Raises:
            DataError: if one can't be used; it is named by row and file.
        """
        if self.kind == "array":
            return array_inputs(source, self.shape)
        if self.kind == "table":
            assert self.encoder is not None
            rows = table_inputs(source, self.encoder)
            return TensorInputs(rows.encoder.encode(rows.numbers, rows.codes.long())) if rows.fits_memory else rows
        if self.kind == "image":
            assert self.image_size is not None
            return image_inputs(source, columns[0], self.image_size, options)
        texts = texts_of(source, columns[0])
        if self.tokenizer == HASHING:
            return HashedTexts.of(texts, self.max_tokens)
        return TextInputs(np.array(texts, object), self.tokenizer, self.max_tokens, padding="longest")

    def codes_of(self, source: Source, label: str | None) -> RowCodes:
        """What each row is, as far as its columns say; all of the first class where there is no label.

        Raises:
            DataError: if a class or an attribute's value is unknown.
        """
        labels = np.zeros(len(source), np.int64)
        if label is not None:
            labels = classes_of(source.table[label], label, source.place, self.classes).codes
        known = [column for column in self.attributes if column.column in source.columns]
        complete = bool(known) and len(known) == len(self.attributes)
        attributes, members = self._attributes(source) if complete else (None, None)
        group = None
        if self.group is not None and self.group in source.columns:
            group = classes_of(source.table[self.group], self.group, source.place, self.group_names).codes
        return RowCodes(labels, attributes, members, group)

    def examples(self, source: Source, inputs: Inputs, codes: RowCodes) -> Examples:
        """All rows of a source as examples, with row numbers as ids."""
        names = None
        if self.id is not None and self.id in source.columns:
            names = _names(source.table[self.id])
        elif (
            self.kind == "image" and source.folder is not None and not pa.types.is_struct(_type(source, self.inputs[0]))
        ):
            names = np.array(source.table[_image_column(source, self.inputs[0])].to_pylist(), object)
        memberships, group_names = None, self.group_names or None
        if codes.members is not None:
            classes = codes.labels[:, None] == np.arange(len(self.classes))
            memberships = (classes[:, :, None] & codes.members[:, None, :]).reshape(len(source), -1)
            group_names = self.all_group_names
        owners, clients = self._owners(source)
        return Examples.of(
            inputs, codes.labels, attributes=codes.attributes, groups=codes.groups, memberships=memberships,
            sources=owners, class_names=self.classes,
            attribute_names=self.attribute_names if codes.attributes is not None else None,
            group_names=group_names, source_names=clients, names=names,
        )  # fmt: skip

    @property
    def preparation(self) -> str:
        """How a file or a row becomes what the model takes, in a sentence, for programs that do without holdfast."""
        if self.kind == "image":
            assert self.image_size is not None
            return f"An image becomes one by these steps: {reader_for(self.image_size).in_words()}."
        if self.kind == "array":
            return ""
        rows = "Rows of a table become" if self.kind == "table" else "Texts become"
        return f"{rows} such inputs as schema.json says, which goes along; `holdfast predict` does it."

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """A name per value of the attribute, which is the product of its columns: ``sex=f & age=<44``."""
        columns = [[f"{column.column}={value}" for value in column.values] for column in self.attributes]
        return tuple(" & ".join(values) for values in product(*columns))

    @property
    def all_group_names(self) -> tuple[str, ...]:
        """A name per group: those of a column that names it outright, else each class with each attribute value."""
        if self.group is not None or not self.attributes:
            return self.group_names
        return tuple(f"{label}/{value}" for label in self.classes for value in self.attribute_names)

    def _attributes(self, source: Source) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
        total = np.zeros(len(source), np.int64)
        for attribute in self.attributes:
            column = source.table[attribute.column]
            if attribute.lists:
                return None, memberships_of(column, attribute.column, source.place, attribute.values)[0]
            if attribute.edges:
                codes = cut(source.numbers(attribute.column), np.array(attribute.edges)).codes
            else:
                codes = attribute_of(column, attribute.column, source.place, attribute.values).codes
            wrong = np.flatnonzero((codes < 0) | (codes >= len(attribute.values)))
            if len(wrong):
                value = shortened(str(column[int(wrong[0])].as_py()))
                raise DataError(
                    f"{source.place} has {value!r} in column {attribute.column!r} of row {int(wrong[0]) + 1}, which "
                    "the training data did not have; correct it, or leave the column out"
                )
            total = total * len(attribute.values) + codes
        return total, None

    def _owners(self, source: Source) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
        if self.client is None or self.client not in source.columns:
            return None, None
        coded = owners_of(source, self.client)
        return coded.codes, coded.names

    # ---------------------------------------------------------------------------------------------------- on disk

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, values: Any) -> Schema:
        """What `to_json` gave.

        Raises:
            CheckpointError: if it is something else.
        """
        try:
            if values["format"] != _FORMAT or values["kind"] not in get_args(Kind):
                raise ValueError(f"it is of kind {values['kind']!r:.40} and format {values['format']!r:.40}")
            return cls(
                values["kind"],
                stored.each(stored.text, values["inputs"]),
                stored.optional(stored.text, values["label"]),
                stored.each(stored.text, values["classes"]),
                stored.each(AttributeColumn.from_json, values["attributes"]),
                stored.optional(stored.text, values["group"]),
                stored.each(stored.text, values["group_names"]),
                stored.optional(stored.text, values["id"]),
                stored.optional(stored.text, values["client"]),
                stored.optional(TableEncoder.from_json, values["encoder"]),
                stored.optional(stored.count(4096), values["image_size"]),
                stored.text(values["tokenizer"]),
                stored.count(1 << 20)(values["max_tokens"]),
                stored.each(stored.count(1 << 31), values["shape"]),
            ).checked()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"this isn't the schema of a run ({error}); train again") from error

    def checked(self) -> Schema:
        """Itself, if its parts belong together.

        Raises:
            ValueError: if they don't.
        """
        needs = {"table": self.encoder, "image": self.image_size, "array": self.shape}
        if not needs.get(self.kind, True) or (self.kind in ("image", "text")) > len(self.inputs):
            raise ValueError(f"it does not say how inputs of kind {self.kind} are made")
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise ValueError("its classes are none, or occur twice")
        if len(self.attributes) > 1 and any(attribute.lists for attribute in self.attributes):
            raise ValueError("groups that overlap can't be crossed with others")
        return self

    @classmethod
    def load(cls, path: Path) -> Schema:
        """Read ``schema.json`` of a run.

        Raises:
            CheckpointError: if it is missing or damaged.
        """
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} can't be read ({error}); it says how the run read its data") from error


@dataclass(frozen=True, eq=False)
class RowCodes:
    """What each row is, as numbers.

    Attributes:
        labels: the class, int64 of shape (n,).
        attributes: the value in the product of the attribute columns, where there are some.
        members: which values a row has, bool of shape (n, values), where they are lists.
        groups: the group, where a column names it outright.
    """

    labels: NDArray[np.int64]
    attributes: NDArray[np.int64] | None = None
    members: NDArray[np.bool_] | None = None
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class NewExamples:
    """Data that a trained model is to look at.

    Attributes:
        examples: the rows.
        labelled: whether their labels are known; they are all 0 otherwise.
        notes: what in them the model was not given, a line each.
    """

    examples: Examples
    labelled: bool
    notes: tuple[str, ...] = ()


def texts_of(source: Source, column: str) -> list[str]:
    """A column of texts; a missing one is refused.

    Raises:
        DataError: if the column has no text, or some rows don't.
    """
    values = plain(source.table[column])
    if not pa.types.is_string(values.type):
        raise DataError(
            f"column {column!r} of {source.place} holds {values.type} and not texts; name another with --text"
        )
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy())[0]) + 1
        raise DataError(
            f"{source.place} has no text in column {column!r} of {counted(values.null_count, 'row')} (the first is "
            f"row {row}); fill them or drop these rows"
        )
    return list(values.to_pylist())


def owners_of(source: Source, column: str) -> Coded:
    """Whose each row is.

    Raises:
        DataError: if a row is nobody's.
    """
    values = plain(source.table[column])
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type) or values.null_count:
        raise DataError(f"{source.place} has rows without a client in column {column!r}; fill it in or drop these rows")
    return coded_values(values.cast(pa.string()))


def _names(column: pa.ChunkedArray) -> NDArray[Any]:
    """What each row is called, by any column: a moment may be one that Python has no date for."""
    column = plain(column)
    if not (pa.types.is_nested(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.string())
    names = np.empty(len(column), object)
    names[:] = [str(value) for value in column.to_pylist()]
    return names


def _image_column(source: Source, column: str) -> str:
    return column if column in source.columns else source.roles["image"]


def _type(source: Source, column: str) -> Any:
    return source.table[_image_column(source, column)].type
