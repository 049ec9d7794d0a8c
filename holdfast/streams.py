"""Random streams by name: every draw depends on (seed, purpose, position) and on nothing drawn before.

Two methods that are compared under one seed see the same draws wherever their purposes agree, a resumed run needs no
saved generator state, and no global generator is ever reseeded.

There are two rules by which a name becomes a generator, and neither can change any more: published numbers hang on the
draws. `derive_seed`, with `torch_stream` and `numpy_stream`, hashes seed and purpose. `data_stream` is older: it hands
the seed and the letters of the purpose to NumPy as they are. Data sets and partitions of clients are drawn by it, and
nothing else is.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from holdfast.errors import ConfigError


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


def seed_everywhere(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout on `device` draws from: torch's global ones, inside ``torch.random.fork_rng``.

    On the CPU only the CPU's. ``torch.manual_seed`` would leave a note for every kind of device that is not in use,
    with the stack at that moment: a millisecond each time, and memory that is never freed.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def data_stream(seed: int, purpose: str) -> np.random.Generator:
    """A fresh NumPy generator for what a data set draws under the name `purpose`.

    Args:
        seed: of the data set, 0 or more: NumPy takes no negative one.
        purpose: a word.

    Raises:
        ConfigError: if the seed is negative.
    """
    if seed < 0:
        raise ConfigError(f"the seed {seed} is negative; give 0 or more")
    return np.random.default_rng([seed, *purpose.encode()])
