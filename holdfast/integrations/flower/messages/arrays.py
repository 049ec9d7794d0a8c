"""An array that somebody else's machine has sent, read without believing a word of it.

Its claims and its header are compared with what must come, so that ten gigabytes are refused and not allocated. The
header is never parsed: NumPy's own reader takes it for Python, which is more than a stranger should be given. Pickles
are not read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import FederationError

#: Most bytes of a header; NumPy pads it to a multiple of 64.
HEADER_BYTES = 512


class RejectedError(FederationError):
    """What arrived is not what was asked for; the message says in what."""


def read_array(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of a Flower array, if it is exactly what must come.

    Args:
        name: for the sentence.
        array: what came, with its claims: `dtype`, `shape`, `stype`, `data`.
        shape: that it must have.
        dtype: that it must have.

    Returns:
        A view of the bytes that came, in the machine's memory already; read-only.

    Raises:
        RejectedError: if it is anything else; nothing of its size has been allocated then.
    """
    need = math.prod(shape) * dtype.itemsize
    if array.stype != "numpy.ndarray":
        raise RejectedError(f"its array {name!r} is serialized by {array.stype!r}, not as numpy.ndarray")
    if array.dtype != dtype.name or tuple(array.shape) != shape:
        raise RejectedError(
            f"its array {name!r} claims {array.dtype} {tuple(array.shape)} where {dtype} {shape} must come"
        )
    if len(array.data) > need + HEADER_BYTES:
        raise RejectedError(f"its array {name!r} has {len(array.data)} bytes where {need} must come")
    fortran, start = _header(name, array.data, shape, dtype)
    if len(array.data) - start != need:
        raise RejectedError(f"its array {name!r} holds {len(array.data) - start} bytes where {need} must come")
    if not need:
        return np.empty(shape, dtype)
    values = np.frombuffer(array.data, dtype, offset=start)
    return values.reshape(shape, order="F" if fortran else "C")


def _header(name: str, data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[bool, int]:
    """Whether columns come first, and where the numbers begin, in a file of NumPy's format 1.0."""
    length = int.from_bytes(data[8:10], "little")
    text = data[10 : 10 + length].decode("latin1").strip()
    descr = np.lib.format.dtype_to_descr(dtype)
    for fortran in (False, True):
        wanted = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
        if data[:8] == b"\x93NUMPY\x01\x00" and text == wanted:
            return fortran, 10 + length
    raise RejectedError(f"its array {name!r} is not {dtype} {shape} in NumPy's format, as it claims")
