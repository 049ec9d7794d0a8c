"""Memory of worker processes: tensors that they share with the server, and an allocator that keeps what it has."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap

import torch
from torch import Tensor


def shared_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of zeros that forked processes see and change; memory is taken when it is first touched."""
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    if size == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(shape)


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next step instead of giving it back to the system; nothing elsewhere.

    A training step takes and frees the same megabytes again and again. Handing them back each time costs a page fault
    per 4 KiB, up to a fifth of the time of a small network. For processes that are our own.
    """
    trim_threshold, mmap_threshold, never = -1, -3, 2**30
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(trim_threshold, never)
        library.mallopt(mmap_threshold, never)
