"""The values of a poison package, rebuilt from the bytes of its pickles.

The public poisoning benchmark ships pickles. They are not loaded but described, see `described` beside this module.
Here the few kinds of values that a package has (NumPy arrays and numbers, Pillow images, torch tensors) are made from
their bytes by code of ours. A package can't ask for much more memory than a few times its size.
"""

from __future__ import annotations

import io
import math
import operator
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.errors import DataError
from holdfast.poisoning.attacks.public_benchmark.described import Described, allow, read_described

#: 1,000 images of 224 x 224 in float32 are 0.6 GB.
MOST_BYTES = 2**30

#: A value may be stored once and used again. What is rebuilt has at most this many times the bytes of the file and
#: 64 MB more, where every value counts as 64 bytes, which a small object has.
_SHARING, _FREE, _VALUE = 4, 2**26, 64

_CHANNELS = {"L": 1, "RGB": 3}
_NUMBERS = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
_STORAGES = {
    **{"torch DoubleStorage": "f8", "torch FloatStorage": "f4", "torch HalfStorage": "f2", "torch BoolStorage": "b1"},
    **{"torch LongStorage": "i8", "torch IntStorage": "i4", "torch ShortStorage": "i2", "torch CharStorage": "i1"},
    "torch ByteStorage": "u1",
}

#: Takes what something costs, and raises where that is too much.
Spend = Callable[[int], None]


def read_pickled(path: Path) -> Any:
    """The content of a pickle file as plain values.

    Args:
        path: the file.

    Returns:
        Lists, tuples, dicts, numbers, strings and bytes, and NumPy arrays for arrays, images (uint8, height x width x
        channels) and tensors.

    Raises:
        DataError: if the file is missing, too large, damaged, or asks for anything that isn't data.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES or not path.is_file():
            raise DataError(
                f"{path} has {size:,} bytes or isn't a file; a file of a package has at most {MOST_BYTES:,}"
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}); give a file of the poisoning benchmark") from error
    try:
        return _plain(read_described(content, _KINDS), _purse(_SHARING * len(content) + _FREE))
    except DataError as error:
        raise DataError(f"{path} is not read: {error}; give a file of the poisoning benchmark") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is damaged or no pickle ({type(error).__name__}); fetch it again") from error


def _purse(room: int) -> Spend:
    def spend(cost: int) -> None:
        nonlocal room
        room -= cost
        if room < 0:
            raise DataError("its values are many times larger than the file")

    return spend


def _plain(value: Any, spend: Spend) -> Any:
    """Nested values with every call turned into the data it stands for."""
    spend(_VALUE)
    if isinstance(value, Described):
        return value.rebuild(spend)
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item, spend) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item, spend) for key, item in value.items()}
    if isinstance(value, type):
        raise DataError("it has a function or a class where data belong")
    return value


def _dtype(call: Described, spend: Spend) -> np.dtype[Any]:
    """``dtype(text, False, True)``, then the state (version, byte order, ...)."""
    order = call.state[1].replace("|", "=") if call.state else "="
    if call.arguments[0] not in _NUMBERS or order not in ("=", "<", ">"):
        raise DataError("it has an array that is not of numbers")
    dtype: np.dtype[Any] = np.dtype(order + call.arguments[0])
    return dtype


def _array(call: Described, spend: Spend) -> NDArray[Any]:
    """``_reconstruct(ndarray, (0,), b'b')``, then the state (version, shape, dtype, Fortran order, bytes)."""
    _, shape, dtype, fortran, content = call.state
    return _shaped(_plain(dtype, spend), _bytes(content, spend), shape, "F" if fortran else "C")


def _array_of_buffer(call: Described, spend: Spend) -> NDArray[Any]:
    """``_frombuffer(bytes, dtype, shape, order)``, the form of pickle protocol 5."""
    content, dtype, shape, order = call.arguments
    return _shaped(_plain(dtype, spend), _bytes(content, spend), shape, order)


def _number(call: Described, spend: Spend) -> int | float | bool:
    """``scalar(dtype, bytes)``."""
    dtype, content = call.arguments
    number: int | float | bool = _shaped(_plain(dtype, spend), _bytes(content, spend), ()).item()
    return number


def _image(call: Described, spend: Spend) -> NDArray[Any]:
    """A Pillow image, whose state is [info, mode, size, palette, bytes]."""
    _, mode, (width, height), _, content = call.state[:5]
    if mode not in _CHANNELS:
        raise DataError("it has an image that is neither RGB nor L")
    return _shaped(np.dtype(np.uint8), _bytes(content, spend), (height, width, _CHANNELS[mode]))


def _storage(call: Described, spend: Spend) -> NDArray[Any]:
    """``_load_from_bytes(bytes)``: five pickles, of which the fourth names the type, then the length and the values.

    Nothing unpickles them, `torch.load` neither: it makes room for any length that they claim.
    """
    stream = io.BytesIO(_bytes(call.arguments[0], spend))
    names = [[text for code, text, _ in pickletools.genops(stream) if code.name == "GLOBAL"] for _ in range(5)]
    if len(names[3]) != 1 or names[3][0] not in _STORAGES:
        raise DataError("it has a tensor that is not of numbers")
    count = int.from_bytes(stream.read(8), "little")
    return np.frombuffer(stream.getvalue(), _STORAGES[names[3][0]], count, stream.tell()).copy()


def _tensor(call: Described, spend: Spend) -> NDArray[Any]:
    """``_rebuild_tensor_v2(storage, offset, size, stride, ...)``."""
    storage, offset, size, stride = call.arguments[:4]
    values = _plain(storage, spend)
    offset, size, stride = _length(offset), _lengths(size), _lengths(stride)
    spend(math.prod(size) * values.itemsize)
    if math.prod(size) and offset + sum((n - 1) * by for n, by in zip(size, stride, strict=True)) >= len(values):
        raise DataError("it has a tensor that is larger than its storage")
    found: NDArray[Any] = torch.from_numpy(values).as_strided(size, stride, offset).numpy().copy()
    return found


def _encoded(call: Described, spend: Spend) -> bytes:
    """Bytes as protocol 2 writes them: ``encode(text, 'latin1')``, or ``bytes()`` for none."""
    text, encoding = call.arguments or ("", "latin1")
    spend(len(text))
    if not isinstance(text, str) or encoding != "latin1":
        raise DataError("it has a text in another encoding where bytes belong")
    return text.encode("latin1")


def _refused(call: Described, spend: Spend) -> Any:
    raise DataError("it has a function or a class where data belong")


def _bytes(value: Any, spend: Spend) -> bytes:
    content = value.rebuild(spend) if isinstance(value, Described) else value
    if not isinstance(content, (bytes, bytearray)):
        raise DataError(f"it has {type(content).__name__} where bytes belong")
    spend(len(content))
    return bytes(content)


def _shaped(dtype: np.dtype[Any], content: bytes, shape: Any, order: Any = "C") -> NDArray[Any]:
    """An array of the machine's own byte order that may be written to."""
    flat = np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(_lengths(shape), order=order)


def _lengths(shape: Any) -> tuple[int, ...]:
    return tuple(_length(n) for n in shape)


def _length(value: Any) -> int:
    length = operator.index(value)
    if not 0 <= length <= MOST_BYTES:
        raise DataError("it has a length that no file has")
    return length


_KINDS = allow(
    {
        **{f"numpy.{core}.multiarray._reconstruct": _array for core in ("core", "_core")},
        **{f"numpy.{core}.multiarray.scalar": _number for core in ("core", "_core")},
        **{f"numpy.{core}.numeric._frombuffer": _array_of_buffer for core in ("core", "_core")},
        "numpy.dtype": _dtype,
        "numpy.ndarray": _refused,
        "PIL.Image.Image": _image,
        "PIL.PngImagePlugin.PngImageFile": _image,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch.storage._load_from_bytes": _storage,
        **dict.fromkeys(("_codecs.encode", "__builtin__.bytes", "builtins.bytes"), _encoded),
        "collections.OrderedDict": lambda call, spend: {},
    }
)
