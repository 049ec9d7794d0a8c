"""Examples as images: pictures of inputs, heat maps over them, and the sheet of a run's worst group.

The sheet shows the worst group where the model is right and where it is wrong. Its examples come from the test set by
the ids in predictions.parquet, and only those that are shown are read. Both lists begin with what the model was surest
of: confident mistakes say most about a shortcut.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import DataError
from holdfast.report.html.markup import Html, number, percent, tag
from holdfast.training.evaluation.group_report import GroupReport

_MOST = 12
_TINY = 64
_LARGEST = 192
_SMALLEST_SIDE = 4
_HOT = (240, 80, 20)


#: What is said in place of images.
NO_IMAGES = tag("p", "The inputs of this data set aren't images, so there are none to show.", class_="note")


#: Gives what examples say in words, by their ids; None where that is not at hand.
InWords = Callable[[Sequence[int]], Sequence[str] | None]


def example_sheet(
    report: GroupReport, predictions: dict[str, Any], test: Examples, in_words: InWords = lambda ids: None
) -> Html:
    """Examples of the worst group, wrong ones and right ones.

    Args:
        report: on the test set.
        predictions: columns ``id``, ``label``, ``predicted`` and ``confidence``.
        test: the test set that was predicted.
        in_words: tells what examples are that are no images: texts, rows of a table.

    Returns:
        Two rows of images, or lists of texts, or a sentence where there is neither.

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
        shown: Sequence[Image.Image | str] | None = pictures(test, torch.from_numpy(places[rows])) if rows else []
        drawn = shown is not None
        if shown is None:
            shown = in_words([int(predictions["id"][row]) for row in rows])
        if shown is None:
            return NO_IMAGES
        cards = [
            card(
                one,
                int(predictions["id"][row]),
                true=test.class_names[predictions["label"][row]],
                predicted=test.class_names[predictions["predicted"][row]],
                confidence=float(predictions["confidence"][row]),
                called=None if test.names is None else str(test.names[places[row]]),
            )
            for one, row in zip(shown, rows, strict=True)
        ]
        how_many = f"{len(rows)} of {number(int(chosen.sum()))}, surest first" if rows else "none"
        parts.append(tag("h3", title, " ", tag("small", how_many)))
        parts.append(tag("ul", *cards, class_="sheet" if drawn else "sheet words"))
    return tag("div", *parts)


def card(
    picture: Image.Image | str,
    name: int,
    *,
    true: str,
    predicted: str,
    confidence: float,
    heat: Image.Image | None = None,
    called: str | None = None,
) -> Html:
    """An example on a sheet: its picture or text, and below it the true class, the prediction and its confidence.

    Args:
        picture: of the example, or what it says in words.
        name: its id.
        true: its class.
        predicted: the predicted class.
        confidence: probability of that class.
        heat: where the model looked, drawn over the picture.
        called: what people call it, such as its file.

    Returns:
        The item of a list.
    """
    sure = ">99.9%" if 0.9995 <= confidence < 1 else percent(confidence)
    if true == predicted:
        alt, verdict = f"example {name}, {true}, recognised with confidence {sure}", tag("b", predicted)
    else:
        alt = f"example {name}, {true}, taken for {predicted} with confidence {sure}"
        verdict = tag("b", true, " \N{RIGHTWARDS ARROW} ", tag("em", predicted))
    looked = None if heat is None else image(heat, f"where example {name} speaks for {predicted}")
    shown = tag("p", picture) if isinstance(picture, str) else image(picture, alt)
    which = f"id {name}" if called is None or called == str(name) else f"{called}, id {name}"
    return tag("li", shown, looked, tag("p", verdict), tag("p", f"{sure}, {which}", class_="note"))


def image(picture: Image.Image, alt: str) -> Html:
    """A picture inside the page; small ones keep their pixels."""
    return tag(
        "img",
        src=_data_uri(picture),
        alt=alt,
        width=picture.width,
        height=picture.height,
        class_="tiny" if max(picture.size) <= _TINY else None,
    )


def _places(predictions: dict[str, Any], test: Examples) -> npt.NDArray[np.int64]:
    """Where each prediction's example is in the test set."""
    ids, labels = test.ids.numpy(), test.labels.numpy()
    order = np.argsort(ids)
    rows = order[np.searchsorted(ids, predictions["id"], sorter=order).clip(max=len(ids) - 1)]
    strange = (ids[rows] != predictions["id"]) | (labels[rows] != predictions["label"])
    if strange.any():
        name = int(predictions["id"][strange.argmax()])
        raise DataError(
            f"the test set given has no example with id {name} and the label it had in the run, so it isn't the one "
            "that was predicted; load the data set with the options in the run's config.yaml"
        )
    return np.asarray(rows, dtype=np.int64)


def _in_worst_group(report: GroupReport, test: Examples) -> npt.NDArray[np.bool_]:
    worst = report.by_group.index(report.worst)
    if test.memberships is not None:
        return np.asarray(test.memberships[:, worst].numpy())
    return np.asarray((test.labels if test.groups is None else test.groups).numpy() == worst)


def pictures(examples: Examples, places: Tensor) -> list[Image.Image] | None:
    """Pictures of the examples at `places`, int64, or None where the inputs are no images."""
    inputs, _ = examples.gather(places)
    if not isinstance(inputs, Tensor):
        return None
    drawn = [as_picture(one) for one in inputs]
    return [picture for picture in drawn if picture is not None] if all(drawn) else None


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


def overlay(picture: Image.Image, heat: Tensor) -> Image.Image:
    """A picture in grey under a heat map: the hotter a place, the more orange.

    Args:
        picture: of an input.
        heat: from 0 to 1, float of shape (height, width) of that input.

    Returns:
        A picture of the same size.
    """
    grey = picture.convert("L").convert("RGB")
    mask = Image.fromarray((heat * 200).to(torch.uint8).numpy()).resize(picture.size, Image.Resampling.BILINEAR)
    return Image.composite(Image.new("RGB", picture.size, _HOT), grey, mask)


def _data_uri(picture: Image.Image) -> str:
    """The picture as text: to the pixel where pixels can be seen, compressed like a photograph where they can't."""
    buffer = io.BytesIO()
    kind = "png" if max(picture.size) <= _TINY else "jpeg"
    picture.save(buffer, kind, optimize=True)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode()
