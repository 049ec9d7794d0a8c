"""The sheet of examples: what the worst group looks like where the model is right and where it is wrong.

The examples come from the test set by the ids in predictions.parquet, and only those that are shown are read. Both
lists begin with what the model was surest of: confident mistakes say most about a shortcut.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import DataError
from holdfast.report.markup import Html, number, percent, tag
from holdfast.training.group_report import GroupReport

_MOST = 12
_TINY = 64
_LARGEST = 192
_SMALLEST_SIDE = 4


def example_sheet(report: GroupReport, predictions: dict[str, Any], test: Examples) -> Html:
    """Examples of the worst group, wrong ones and right ones.

    Args:
        report: on the test set.
        predictions: columns ``id``, ``label``, ``predicted`` and ``confidence``.
        test: the test set that was predicted.

    Returns:
        Two rows of images, or a sentence where the inputs are no images.

    Raises:
        DataError: if `test` isn't the set that was predicted.
    """
    places = _places(predictions, test)
    member = _in_worst_group(report, test)[places]
    right = predictions["label"] == predictions["predicted"]
    surest = np.argsort(-predictions["confidence"], kind="stable")
    parts = []
    for title, chosen in (("Wrong", member & ~right), ("Right", member & right)):
        rows = [row for row in surest if chosen[row]][:_MOST]
        pictures = _pictures(test, places[rows]) if rows else []
        if pictures is None:
            return tag("p", "The inputs of this data set aren't images, so there are none to show.", class_="note")
        cards = [
            _card(picture, test.class_names, {name: column[row] for name, column in predictions.items()})
            for picture, row in zip(pictures, rows, strict=True)
        ]
        shown = f"{len(rows)} of {number(int(chosen.sum()))}, surest first" if rows else "none"
        parts.append(tag("h3", title, " ", tag("small", shown)))
        parts.append(tag("ul", *cards, class_="sheet"))
    return tag("div", *parts)


def _card(picture: Image.Image, class_names: Sequence[str], row: dict[str, Any]) -> Html:
    name, confidence = row["id"], float(row["confidence"])
    sure = ">99.9%" if 0.9995 <= confidence < 1 else percent(confidence)
    true, said = class_names[row["label"]], class_names[row["predicted"]]
    if row["label"] == row["predicted"]:
        alt, verdict = f"example {name}, {true}, recognised with confidence {sure}", tag("b", said)
    else:
        alt = f"example {name}, {true}, taken for {said} with confidence {sure}"
        verdict = tag("b", true, " \N{RIGHTWARDS ARROW} ", tag("em", said))
    image = tag(
        "img",
        src=_data_uri(picture),
        alt=alt,
        width=picture.width,
        height=picture.height,
        class_="tiny" if max(picture.size) <= _TINY else None,
    )
    return tag("li", image, tag("p", verdict), tag("p", f"{sure}, id {name}", class_="note"))


def _places(predictions: dict[str, Any], test: Examples) -> npt.NDArray[np.int64]:
    """Where each prediction's example is in the test set."""
    ids, labels = test.ids.numpy(), test.labels.numpy()
    order = np.argsort(ids)
    found = order[np.searchsorted(ids, predictions["id"], sorter=order).clip(max=len(ids) - 1)]
    strange = (ids[found] != predictions["id"]) | (labels[found] != predictions["label"])
    if strange.any():
        name = int(predictions["id"][strange.argmax()])
        raise DataError(
            f"the test set given has no example with id {name} and the label it had in the run, so it isn't the one "
            "that was predicted; load the data set with the options in the run's config.yaml"
        )
    return np.asarray(found, dtype=np.int64)


def _in_worst_group(report: GroupReport, test: Examples) -> npt.NDArray[np.bool_]:
    worst = report.by_group.index(report.worst)
    if test.memberships is not None:
        return np.asarray(test.memberships[:, worst].numpy())
    return np.asarray((test.labels if test.groups is None else test.groups).numpy() == worst)


def _pictures(test: Examples, places: npt.NDArray[np.int64]) -> list[Image.Image] | None:
    inputs, _ = test.gather(torch.from_numpy(places))
    if not isinstance(inputs, Tensor):
        return None
    pictures = [as_picture(one) for one in inputs]
    return [picture for picture in pictures if picture is not None] if all(pictures) else None


def as_picture(values: Tensor) -> Image.Image | None:
    """An input as a picture, or None where it isn't one.

    Args:
        values: (height, width) or (channels, height, width) with up to 3 channels; bytes, floats in [0, 1], or
            normalised floats, which are stretched from their smallest to their largest value.

    Returns:
        A picture, no larger than the page shows.
    """
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or not 1 <= len(values) <= 3 or min(values.shape[1:]) < _SMALLEST_SIDE:
        return None
    pixels = values.detach().cpu().to(torch.float32).nan_to_num()
    if values.dtype == torch.uint8:
        pixels = pixels / 255
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = (pixels - low) / max(high - low, 1e-12)
    if len(pixels) == 2:
        pixels = torch.cat([pixels, torch.zeros_like(pixels[:1])])
    array = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    picture.thumbnail((_LARGEST, _LARGEST))
    return picture


def _data_uri(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
