"""Pickles read as data: their instructions are listed, and nothing they name is ever imported or called.

The public poisoning benchmark ships pickles. Loading one runs whatever functions it names, so they are not loaded here
but listed, see `pickle_listing` beside this module. `plain` rebuilds the few kinds of values that a poison package has
(NumPy arrays and numbers, Pillow images, torch tensors) from their bytes, and refuses all else by name.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.errors import DataError
from holdfast.poisoning.attacks.public_benchmark.pickle_listing import Call, Name, list_calls

_CHANNELS = {"L": 1, "RGB": 3}


def read_pickled(path: Path) -> Any:
    """The content of a pickle file as plain values.

    Args:
        path: the file.

    Returns:
        Lists, tuples, dicts, numbers, strings and bytes, and NumPy arrays for arrays, images (uint8, height x width x
        channels) and tensors.

    Raises:
        DataError: if the file is missing, damaged, or asks for anything that isn't data.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}); give a file of the poisoning benchmark") from error
    try:
        return plain(list_calls(content))
    except DataError as error:
        raise DataError(f"{path} is not read: {error}") from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise DataError(f"{path} is damaged or no pickle ({error}); fetch it again") from error


def plain(value: Any) -> Any:
    """Nested values with every `Call` turned into the data it stands for."""
    if isinstance(value, Call):
        return _rebuilt(value)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, Name):
        raise DataError(f"it refers to {value.path}, which is not data")
    return value


def _rebuilt(call: Call) -> Any:
    *modules, last = call.name.split(".")
    kind = f"{modules[0]}.{last}"
    if kind not in _KINDS:
        raise DataError(f"it asks to call {call.name}, which is not data")
    return _KINDS[kind](call)


def _dtype(call: Call) -> np.dtype[Any]:
    order = call.state[1] if call.state else "="
    found = np.dtype(order.replace("|", "=") + str(call.arguments[0]))
    if found.kind not in "biuf":
        raise DataError(f"it has an array of {found}, not of numbers")
    return found


def _array(call: Call) -> Any:
    """``_reconstruct(ndarray, (0,), b'b')``, then the state (version, shape, dtype, Fortran order, bytes)."""
    _, shape, described, fortran, content = call.state
    dtype = _dtype(described)
    return np.frombuffer(_bytes(content), dtype).reshape(shape, order="F" if fortran else "C").copy()


def _array_of_buffer(call: Call) -> Any:
    """``_frombuffer(bytes, dtype, shape, order)``, the form of pickle protocol 5."""
    content, dtype, shape, order = call.arguments
    return np.frombuffer(_bytes(content), _dtype(dtype)).reshape(shape, order=order).copy()


def _number(call: Call) -> int | float | bool:
    """``scalar(dtype, bytes)``."""
    dtype, content = call.arguments
    found: int | float | bool = np.frombuffer(_bytes(content), _dtype(dtype))[0].item()
    return found


def _image(call: Call) -> Any:
    """A Pillow image, whose state is [info, mode, size, palette, bytes]."""
    _, mode, (width, height), _, content = call.state[:5]
    if mode not in _CHANNELS:
        raise DataError(f"it has an image of mode {mode}; give RGB or L")
    return np.frombuffer(_bytes(content), np.uint8).reshape(height, width, _CHANNELS[mode]).copy()


def _tensor(call: Call) -> Any:
    """``_rebuild_tensor_v2(storage, offset, size, stride, ...)``; the storage is a torch file inside the pickle."""
    storage, offset, size, stride = call.arguments[:4]
    if not isinstance(storage, Call) or not storage.name.endswith("._load_from_bytes"):
        raise DataError("it has a tensor without its storage")
    stored = torch.load(io.BytesIO(_bytes(storage.arguments[0])), map_location="cpu", weights_only=True)
    values = torch.empty(0, dtype=stored.dtype).set_(stored)
    if math.prod(size) and offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= len(values):
        raise DataError("it has a tensor that is larger than its storage")
    return values.as_strided(size, stride, offset).numpy().copy()


def _bytes(value: Any) -> bytes:
    """Bytes as they are, or as protocol 2 writes them, ``_codecs.encode(text, 'latin1')``, or ``bytes()`` for none."""
    if isinstance(value, Call) and value.name == "__builtin__.bytes" and not value.arguments:
        return b""
    if isinstance(value, Call) and value.name == "_codecs.encode" and value.arguments[1] == "latin1":
        encoded: bytes = value.arguments[0].encode("latin1")
        return encoded
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise DataError(f"it has {type(value).__name__} where bytes belong")


_KINDS: dict[str, Callable[[Call], Any]] = {
    "numpy._reconstruct": _array,
    "numpy._frombuffer": _array_of_buffer,
    "numpy.scalar": _number,
    "PIL.Image": _image,
    "PIL.PngImageFile": _image,
    "torch._rebuild_tensor_v2": _tensor,
    "_codecs.encode": _bytes,
    "__builtin__.bytes": _bytes,
    "collections.OrderedDict": lambda call: {},
}
