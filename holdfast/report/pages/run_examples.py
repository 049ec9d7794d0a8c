"""What examples that are no images say: their texts, or the rows of the user's table that they were made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import SubsetInputs
from holdfast.data.own.places import read_place
from holdfast.data.own.words import shortened
from holdfast.data.readers.texts import TextInputs
from holdfast.errors import HoldfastError
from holdfast.training.run import Run

#: Characters of an example on a page, columns of a row, and bytes of a file that is read again for them.
_LONGEST, _COLUMNS, _LARGEST = 600, 10, 1 << 29


def in_words(run: Run, splits: Splits, ids: Sequence[int]) -> list[str] | None:
    """A text per example of the test set; None where neither texts nor the user's table are at hand.

    Args:
        run: the run, whose configuration says where its data lie.
        splits: the data of the run.
        ids: of the examples.
    """
    texts = _texts(splits.test, ids)
    return _rows(run, splits, ids) if texts is None else texts


def _texts(test: Examples, ids: Sequence[int]) -> list[str] | None:
    """Texts that the inputs still have."""
    place = {number: row for row, number in enumerate(test.ids.tolist())}
    rows, inputs = [place[number] for number in ids], test.inputs
    while isinstance(inputs, SubsetInputs):
        rows, inputs = [int(inputs.positions[row]) for row in rows], inputs.parent
    if not isinstance(inputs, TextInputs):
        return None
    firsts = [str(inputs.texts[row]) for row in rows]
    if inputs.seconds is None:
        return [shortened(text, _LONGEST) for text in firsts]
    pairs = zip(firsts, (str(inputs.seconds[row]) for row in rows), strict=True)
    return [shortened(f"{first} | {second}", _LONGEST) for first, second in pairs]


def _rows(run: Run, splits: Splits, ids: Sequence[int]) -> list[str] | None:
    """Rows of the user's own table, whose numbers the ids are; read again, since inputs are only numbers."""
    schema, place = splits.schema, Path(str(run.config.get("data", "")))
    if schema is None or schema.kind not in ("table", "text") or not place.is_file():
        return None
    if place.stat().st_size > _LARGEST:
        return None
    try:
        source = read_place(str(place))
    except HoldfastError:  # the file is not what the run read: the page does without
        return None
    if any(number >= len(source) for number in ids) or not set(schema.inputs) <= set(source.columns):
        return None
    rows = source.table.select(list(schema.inputs[:_COLUMNS])).take(list(ids)).to_pylist()
    if schema.kind == "text":
        return [shortened(str(row[schema.inputs[0]]), _LONGEST) for row in rows]
    more = f" and {len(schema.inputs) - _COLUMNS} more" if len(schema.inputs) > _COLUMNS else ""
    return [shortened(", ".join(f"{name}={value}" for name, value in row.items()), _LONGEST) + more for row in rows]
