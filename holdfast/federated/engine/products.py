"""Products of matrices for many clients at once, by the fastest kernel that torch brings for this processor.

Torch multiplies by MKL, which gives processors of other vendors its AVX2 kernels only. Where they have AVX-512, oneDNN,
which torch brings for convolutions, is twice as fast. It takes one matrix at a time and a few microseconds more per
call, so it is used for large products. Which kernel runs hangs on shapes and the processor, never on time, and not on
how many clients run together, so results can be repeated to the bit.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

#: Multiplications of one client's product from which the call is worth it (measured from 20,000 to 140 million).
_LARGE = 2_500_000


def times_transposed(left: Tensor, right: Tensor, shift: Tensor | None = None) -> Tensor:
    """Each client's ``left @ right.T + shift``, as in `torch.nn.functional.linear`.

    Args:
        left: shape (clients, n, f).
        right: shape (clients, o, f).
        shift: shape (clients, 1, o), or (clients, n, 1).

    Returns:
        Shape (clients, n, o).
    """
    if left[0].numel() * right.shape[1] < _LARGE or not _by_one_dnn(left):
        transposed = right.transpose(1, 2)
        return torch.bmm(left, transposed) if shift is None else torch.baddbmm(shift, left, transposed)
    result = left.new_empty(*left.shape[:2], right.shape[1])
    for k, own in enumerate(result):
        if shift is None:
            own.copy_(_linear(left[k], right[k]))
        elif shift.shape[1] == 1:
            own.copy_(_linear(left[k], right[k], shift[k, 0]))
        else:
            torch.add(_linear(left[k], right[k]), shift[k], out=own)
    return result


def _linear(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    # The operator that torch.compile puts in the place of a linear layer; it computes in float32, as MKL does.
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], ""))


def _by_one_dnn(values: Tensor) -> bool:
    return values.dtype == torch.float32 and values.device.type == "cpu" and _one_dnn_is_faster()


@functools.cache
def _one_dnn_is_faster() -> bool:
    """Whether this processor has AVX-512 and is none for which MKL would use it."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # type: ignore[no-untyped-call]
        return False
    processor = Path("/proc/cpuinfo")
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not processor.exists():
        return False
    return "GenuineIntel" not in processor.read_text()
