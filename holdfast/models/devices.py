"""Where to compute: a device by name, checked before anything is loaded, or the best there is.

The default everywhere is ``cpu``, also where there is a GPU: numbers of a run are promised to the bit, and kernels of
GPUs add in other orders. ``auto`` is the word for speed.
"""

from __future__ import annotations

import torch

from holdfast.errors import ConfigError

AUTO = "auto"


def find_device(name: str) -> torch.device:
    """The device called `name`, if torch can compute there.

    Args:
        name: as torch has it, such as ``cpu``, ``cuda`` or ``cuda:1``; ``auto`` takes CUDA, else Apple's MPS, else the
            CPU.

    Returns:
        A device that holds a number and gives it back: how torch fails on others differs from one to the next.

    Raises:
        ConfigError: if there is none.
    """
    if name == AUTO:
        return best_device()
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, ValueError, TypeError) as error:
        reason = " ".join(str(error).strip().partition("\n")[0].rstrip(".").split())[:200]
        raise ConfigError(
            f"can't compute on the device {name!r} here ({reason}); give cpu, or auto for the best there is"
        ) from error
    return device


def best_device() -> torch.device:
    """CUDA where there is some, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
