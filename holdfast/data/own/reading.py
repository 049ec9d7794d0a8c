"""From a place to checked examples in three parts: the one path that `fit`, federations and audits read through.

Everything that can be wrong with the data is found here, before a model is made: what is missing, not finite, not a
class, too rare to be split, outside of its folder. What was guessed is in the notes of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import InputBatch
from holdfast.data.own.array_inputs import array_shape
from holdfast.data.own.columns import arrow_told, is_text
from holdfast.data.own.features import fit_encoder
from holdfast.data.own.handed_on import hand_on, take
from holdfast.data.own.image_inputs import guess_size
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.parts import (
    by_client,
    completed,
    parts_by_column,
    parts_by_folder,
    parts_by_time,
    shuffled,
    stratified,
)
from holdfast.data.own.places import read_place
from holdfast.data.own.python_objects import first_input, is_object_name
from holdfast.data.own.roles import NONE, Roles, assign
from holdfast.data.own.schema import HASHING, AttributeColumn, RowCodes, Schema, owners_of
from holdfast.data.own.source import PART_NAMES, Source
from holdfast.data.own.threads import in_threads, side_by_side
from holdfast.data.own.values import Coded, attribute_of, classes_of, memberships_of, quantiles_of
from holdfast.data.own.words import shortened, some
from holdfast.errors import DataError, counted

Codes = NDArray[np.int64]
_LONGEST_NOTE = 600  # characters; names of columns and classes may be any text


@dataclass(frozen=True, eq=False)
class OwnRows:
    """All rows of a user's data as examples, and the part of each.

    Attributes:
        examples: the rows, with row numbers as ids.
        parts: 0 for training, 1 for validation, 2 for the test, int64 of shape (n,).
        schema: how to read other data in the same way.
        notes: what was guessed or changed, a line each.
    """

    examples: Examples
    parts: Codes
    schema: Schema
    notes: tuple[str, ...]

    def splits(self, name: str) -> Splits:
        """The three parts; every part knows all classes and groups of the whole."""
        rows = in_threads(lambda part: np.flatnonzero(self.parts == part), range(3))
        train, validation, test = in_threads(self.examples.subset, rows)
        return Splits(name, train, validation, test, notes=self.notes, schema=self.schema)


def read_rows(place: str, options: ReadingOptions, *, federated: bool = False, seed: int = 0) -> OwnRows:
    """Read a user's own data.

    Args:
        place: a file, a folder or a name on the hub, see `holdfast.data.own.places.read_place`.
        options: what the user says about it.
        federated: split each client's rows, not all rows together, where a client column is named.
        seed: decides the split of a federation.

    Raises:
        DataError: if the data can't be used as it is; the sentence says where and what to do.
    """
    with arrow_told(place):
        return _read_rows(place, options, federated, seed)


def _read_rows(place: str, options: ReadingOptions, federated: bool, seed: int) -> OwnRows:
    source = take(place) or read_place(place)
    roles = assign(source, options)
    assert roles.label is not None
    split_by_client = federated and options.client is not None
    source = _split_by_folders(source, roles, options)
    made = roles.split is None and source.parts is None and roles.time is None
    # The split's order takes as long to draw as all words to be coded, and neither waits for the other.
    order, (labels, (attributes, cells, members)) = side_by_side(
        lambda: shuffled(np.arange(len(source)), options.split_seed) if made and not split_by_client else None,
        lambda: _coded(source, roles, options),
    )
    group = _explicit_group(source, roles)
    strata = labels.codes
    if group is not None:
        strata = group.codes
    elif cells is not None:
        strata = labels.codes * (1 + int(cells.max(initial=0))) + cells
    parts, notes = _parts(source, roles, options, strata, client_seed=seed if split_by_client else None, order=order)
    counts = _counts(parts, labels.codes, len(labels.names))
    # Clients may be too small to be validated on; what chooses by validation says so itself.
    _check_parts(counts, labels, source, made=made, needed=(0, 2) if split_by_client else (0, 1, 2))
    schema, encoding = _encoded(source, roles, options, np.flatnonzero(parts == 0))
    schema = replace(
        schema,
        classes=labels.names,
        attributes=attributes,
        group=None if group is None else "groups",
        group_names=() if group is None else group.names,
    )
    codes = RowCodes(labels.codes, cells if members is None else None, members, None if group is None else group.codes)
    examples = schema.examples(source, schema.inputs_of(source, roles.inputs, options), codes)
    empty = _empty_cells(examples, parts, counts)
    lines = (_summary(source, schema, counts), *source.notes, *roles.notes, *notes, *encoding, *empty)
    return OwnRows(examples, parts, schema, tuple(shortened(line, _LONGEST_NOTE) for line in lines))


def _split_by_folders(source: Source, roles: Roles, options: ReadingOptions) -> Source:
    """The rows with the parts that the folders of their images are named after, where nothing else says parts."""
    unsaid = roles.split is None and source.parts is None and roles.time is None and options.split != NONE
    if not unsaid or roles.kind != "image" or not is_text(source.table[roles.inputs[0]]):
        return source
    parts = parts_by_folder(source.table[roles.inputs[0]].to_pylist())
    if parts is None:
        return source
    note = f"split: by the folders that {roles.inputs[0]!r} begins with (--split none makes another split)"
    return replace(source, parts=parts, notes=(*source.notes, note))


def recipe_for(place: str, options: ReadingOptions) -> Mapping[str, Any]:
    """A model and training settings to begin with, by what the inputs are and how large images are."""
    if is_object_name(place):
        return _recipe_for_shape(first_input(place, options))
    source = read_place(place, sample=True)
    roles = assign(source, options, labelled=False)
    if roles.kind == "text":
        if options.tokenizer != HASHING:
            return {"model": f"hf:{options.tokenizer}", "epochs": 3, "batch_size": 16, "learning_rate": 2e-5,
                    "optimizer": "adamw", "clip_norm": 1.0}  # fmt: skip
        return {"model": "text-bag", "epochs": 5, "batch_size": 64, "learning_rate": 2e-3, "optimizer": "adam"}
    if roles.kind == "table":
        return {"model": "mlp", "epochs": 20, "batch_size": 128, "learning_rate": 1e-3, "optimizer": "adamw",
                "weight_decay": 1e-2}  # fmt: skip
    if roles.kind == "array":
        return {"model": "mlp"}
    return _image_recipe(options.image_size or guess_size(source, roles.inputs[0])[0])


def _image_recipe(size: int) -> Mapping[str, Any]:
    if size > 96:
        return {"model": "resnet18", "augment": "flip"}
    return {
        "model": "resnet20",
        "augment": "flip",
        "batch_size": 128,
        "learning_rate": 0.05,
        "weight_decay": 5e-4,
        "schedule": "cosine",
    }


def _recipe_for_shape(inputs: InputBatch) -> Mapping[str, Any]:
    """By an example alone: images are known by their three dimensions."""
    if isinstance(inputs, dict) or inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        return {"model": "mlp"}
    return _image_recipe(max(inputs.shape[2:]))


def count_clients(place: str, options: ReadingOptions) -> int:
    """How many clients there are by the column that says whose rows are; 0 where no such column is there."""
    if options.client is None:
        return 0
    source = hand_on(place, read_place(place))
    return len(owners_of(source, options.client).names) if options.client in source.columns else 0


def _coded(
    source: Source, roles: Roles, options: ReadingOptions
) -> tuple[Coded, tuple[tuple[AttributeColumn, ...], Codes | None, NDArray[np.bool_] | None]]:
    """Classes and attributes; words that are inputs are coded beside them, and kept by the source."""
    assert roles.label is not None
    labels = classes_of(source.table[roles.label], roles.label, source.place)
    attributes = _attributes(source, roles, options)
    for name in roles.inputs if roles.kind == "table" else ():
        if is_text(source.table[name]):
            source.words(name)
    return labels, attributes


def _attributes(
    source: Source, roles: Roles, options: ReadingOptions
) -> tuple[tuple[AttributeColumn, ...], Codes | None, NDArray[np.bool_] | None]:
    """The attribute columns, the cell of each row in their product, and which values it has where they are lists.

    A row of lists is dealt out by its first value, and one without any is a stratum too.
    """
    pieces = {
        name.rpartition(":")[0]: int(name.rpartition(":")[2])
        for name in options.attribute
        if name not in source.columns and name != NONE
    }
    columns: list[AttributeColumn] = []
    cells = np.zeros(len(source), np.int64)
    for name in roles.attributes:
        column = source.table[name]
        if pa.types.is_list(column.type):
            if len(roles.attributes) > 1:
                raise DataError(
                    f"column {name!r} of {source.place} holds lists, which make groups that overlap, and can't be "
                    "crossed with other attributes; name it alone"
                )
            members, values = memberships_of(column, name, source.place)
            cells = np.where(members.any(1), members.argmax(1) + 1, 0)
            return (AttributeColumn(name, values, lists=True),), cells, members
        edges: tuple[float, ...] = ()
        if name in pieces:
            inner, coded = quantiles_of(column, name, source.place, pieces[name])
            edges = tuple(map(float, inner))
        else:
            coded = attribute_of(column, name, source.place)
        columns.append(AttributeColumn(name, coded.names, edges))
        cells = cells * len(coded.names) + coded.codes
    return tuple(columns), cells if columns else None, None


def _explicit_group(source: Source, roles: Roles) -> Coded | None:
    """The group of each row, where an npz file has an array of that name."""
    if source.inputs is None or "groups" not in source.columns or roles.attributes:
        return None
    return classes_of(source.table["groups"], "groups", source.place)


def _parts(
    source: Source,
    roles: Roles,
    options: ReadingOptions,
    strata: Codes,
    *,
    client_seed: int | None,
    order: NDArray[np.uint32] | None,
) -> tuple[Codes, list[str]]:
    shares = (options.validation_share, options.test_share)
    if roles.split is not None:
        given = parts_by_column(source.table[roles.split], roles.split, source.place)
        return completed(given, strata, shares, options.split_seed)
    if roles.time is not None:
        return parts_by_time(source.table[roles.time], roles.time, source.place, shares), [
            f"split: by time in {roles.time!r}"
        ]
    if source.parts is not None:
        unnamed = np.flatnonzero(source.parts < 0)
        if len(unnamed):
            raise DataError(
                f"{source.place} has files named after parts of the data (train, test) and others; name all of them "
                "so, or none"
            )
        return completed(source.parts, strata, shares, options.split_seed)
    if client_seed is not None:
        owners = owners_of(source, str(roles.client))
        return by_client(owners.codes, owners.names, client_seed, str(roles.client)), [
            "split: 72/8/20 of each client's rows"
        ]
    how = (
        f"split: made, {shares[0]:g} for validation and {shares[1]:g} for the test, stratified by group, seed "
        f"{options.split_seed}"
    )
    return stratified(strata, shares, options.split_seed, order=order), [how]


def _check_parts(counts: Codes, labels: Coded, source: Source, *, made: bool, needed: Sequence[int]) -> None:
    """Refuse a split in which the model can't learn a class that it is judged by, or a part is empty."""
    for part in needed:
        if not counts[part].any():
            raise DataError(
                f"{source.place} has too few rows ({len(source)}) for a {PART_NAMES[part]} set; give at least three "
                "rows of a class with each value of its attributes, or a split column"
            )
    untaught = np.flatnonzero(counts[0] == 0)
    if len(untaught):
        names = some([labels.names[code] for code in untaught])
        remedy = (
            "move some of its rows to training in the split column"
            if not made
            else "give more rows of it, or leave it out"
        )
        raise DataError(f"{source.place} has no training row of the class {names}; {remedy}")


def _encoded(source: Source, roles: Roles, options: ReadingOptions, training: Codes) -> tuple[Schema, list[str]]:
    """How inputs are made, measured on training rows; and what was left out or filled, a line each."""
    notes: list[str] = []
    encoder, size = None, options.image_size
    shape: tuple[int, ...] = ()
    if roles.kind == "table":
        encoder, notes = fit_encoder(source, roles.inputs, training)
    elif roles.kind == "image":
        if size is None:
            size, reason = guess_size(source, roles.inputs[0])
            notes = [reason] if reason else []
    elif roles.kind == "array":
        assert source.inputs is not None
        shape, change = array_shape(source.inputs)
        notes = [change] if change else []
    schema = Schema(
        roles.kind,
        roles.inputs,
        roles.label,
        (),
        id=roles.id,
        client=roles.client,
        encoder=encoder,
        image_size=size if roles.kind == "image" else None,
        tokenizer=options.tokenizer,
        max_tokens=options.max_tokens,
        shape=shape,
    )
    return schema, notes


def _empty_cells(examples: Examples, parts: Codes, counts: Codes) -> list[str]:
    """Lines on classes that a part lacks and groups that training lacks: methods can't repair what they never see."""
    lines = []
    for part in (1, 2):
        lacking = [examples.class_names[code] for code in np.flatnonzero(counts[part] == 0)]
        if lacking:
            lines.append(f"warning: the {PART_NAMES[part]} set has no example of the class {some(lacking)}")
    if examples.groups is not None:
        trained = _counts(parts, examples.groups.numpy(), examples.n_groups)[0]
        lacking = [examples.group_names[code] for code in np.flatnonzero(trained == 0)]
        if lacking:
            lines.append(f"warning: no training example of the group {some(lacking)}; it can't be learned")
    return lines


def _counts(parts: Codes, codes: Codes, values: int) -> Codes:
    """How many rows of each part have each value, (3, values)."""
    return np.bincount(parts * values + codes, minlength=3 * values).reshape(3, values)


def _summary(source: Source, schema: Schema, counts: Codes) -> str:
    sizes = "/".join(f"{int(count):,}" for count in counts.sum(1))
    width = schema.encoder.width if schema.encoder else 0
    inputs = {
        "table": f"{counted(len(schema.inputs), 'column')} as {counted(width, 'number')}",
        "text": f"texts in {schema.inputs[0] if schema.inputs else ''!r}, tokens by {schema.tokenizer}",
        "image": f"images in {schema.inputs[0] if schema.inputs else ''!r}",
        "array": f"arrays of shape {schema.shape}",
    }[schema.kind]
    by = " x ".join([repr(schema.label), *(repr(attribute.column) for attribute in schema.attributes)])
    groups = f"; groups by {by}" if schema.attributes else ""
    return (
        f"{counted(len(source), 'row')} ({sizes} for training, validation, test); {inputs}; "
        f"{len(schema.classes)} classes in {schema.label!r} ({some(schema.classes)}){groups}"
    )
