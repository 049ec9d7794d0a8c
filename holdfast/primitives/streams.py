"""Random streams by name: every draw depends on (seed, purpose, position) and on nothing drawn before.

Two methods that are compared under one seed see the same draws wherever their purposes agree, a resumed run needs no
saved generator state, and no global generator is ever reseeded.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for the stream named `purpose` under `seed`.

    Args:
        seed: the seed of the run.
        purpose: words and numbers that name the stream, such as ``"draws", 3``. ``("a", 1)`` and ``("a1",)`` differ.

    Returns:
        A non-negative integer below 2**63, the same on every platform.
    """
    name = repr((int(seed), *purpose)).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1


def torch_stream(seed: int, *purpose: str | int) -> torch.Generator:
    """A fresh CPU generator for the stream named `purpose`."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


def numpy_stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A fresh NumPy generator for the stream named `purpose`."""
    return np.random.default_rng(derive_seed(seed, *purpose))
