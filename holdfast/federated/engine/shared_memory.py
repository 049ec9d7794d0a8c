"""Memory that worker processes share with the server."""

from __future__ import annotations

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
