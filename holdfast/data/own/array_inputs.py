"""Arrays as a model takes them: finite numbers, pixels scaled, channels first."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.inputs import TensorInputs
from holdfast.data.own.source import Source
from holdfast.data.transforms import ScalePixels
from holdfast.errors import DataError, counted

_CHANNELS = (1, 3, 4)


def array_shape(inputs: NDArray[np.generic]) -> tuple[tuple[int, ...], str]:
    """The shape of one input as a model takes it, and what was changed for that; nothing where it is empty."""
    shape = inputs.shape[1:]
    deep = ", and their 16 bits are scaled to 0..1" if _are_deep_pixels(inputs) else ""
    if len(shape) == 2 and (inputs.dtype == np.uint8 or deep):
        return (1, *shape), f"inputs of shape {shape} are taken as images of one channel{deep}"
    if len(shape) == 3 and shape[2] in _CHANNELS and shape[0] not in _CHANNELS:
        return (shape[2], shape[0], shape[1]), f"inputs of shape {shape} have their channels last and are turned{deep}"
    return shape or (1,), f"inputs of shape {shape} are taken as images{deep}" if deep else ""


def _are_deep_pixels(inputs: NDArray[np.generic]) -> bool:
    return inputs.dtype.kind == "u" and inputs.dtype.itemsize == 2 and inputs.ndim > 2


def array_inputs(source: Source, shape: tuple[int, ...]) -> TensorInputs:
    """The inputs of a source as tensors.

    Args:
        source: has an array of inputs.
        shape: of one input, see `array_shape`.

    Raises:
        DataError: if a number is not finite, or the shape is another.
    """
    array = source.inputs
    assert array is not None
    own, _ = array_shape(array)
    if own != shape:
        raise DataError(
            f"the inputs in {source.place} have shape {own} and the model takes {shape}; give inputs of that shape"
        )
    if array.dtype.kind == "f":
        _check_finite(source, array)
    if array.shape[1:] != own and len(own) == 3 and array.ndim == 4:
        array = np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    array = array.reshape(len(array), *own)
    if array.dtype == np.uint8:
        return TensorInputs(torch.from_numpy(array), ScalePixels())
    numbers = array.astype(np.float32, copy=False)
    return TensorInputs(torch.from_numpy(numbers / 65_535 if _are_deep_pixels(array) else numbers))


def _check_finite(source: Source, array: NDArray[np.generic]) -> None:
    """Refuse NaN, infinity, and numbers that float32 makes infinite of."""
    rows = array.reshape(len(array), -1)
    with np.errstate(over="ignore"):
        wrong = [
            start + np.flatnonzero(~np.isfinite(rows[start : start + 4096].astype(np.float32)).all(1))
            for start in range(0, len(rows), 4096)
        ]
    bad = np.concatenate(wrong)
    if len(bad):
        raise DataError(
            f"the inputs in {source.place} have NaN or infinite numbers (as float32) in "
            f"{counted(len(bad), 'example')}, the first has id {int(bad[0])}; correct or drop them"
        )
