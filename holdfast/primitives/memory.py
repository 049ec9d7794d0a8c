"""How the C library hands memory back, which decides how fast large tensors are.

glibc gives every block above 32 MiB back to the system as soon as it is free, and gets it zeroed page by page when the
next one is wanted. The outputs of a ResNet-20's first layer for 512 images are just that large: a forward pass in such
batches takes twice as long per image as one in half as large ones. Small networks feel it too: a training step takes
and frees the same megabytes again and again, and handing them back costs a page fault per 4 KiB, up to a fifth of the
time.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Let this process keep up to 1 GiB of freed memory for its next tensors.

    It is a setting of the whole process, so commands and workers make it and no part of the library does.

    Returns:
        Whether the C library knows the setting; macOS and musl don't, and nothing changes there.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(parameter, _LARGEST) for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
