"""A second device for tests, built where there is a compiler: `available` says whether it is there.

Its arithmetic is the CPU's, so results must be the CPU's to the bit, and a tensor of it that meets one of the CPU is
refused. What it can't show is anything about real hardware: speed, asynchronous kernels, missing dtypes.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import types
from pathlib import Path

import torch

NAME = "second"
_SOURCE = Path(__file__).parent / "second_device.cpp"


@functools.cache
def available() -> bool:
    """Build and register the device; False where there is no compiler."""
    if shutil.which("c++") is None or shutil.which("ninja") is None:
        return False
    from torch.utils.cpp_extension import load

    folder = Path(tempfile.gettempdir()) / f"holdfast-second-device-{torch.__version__}"
    folder.mkdir(exist_ok=True)
    load(
        "second_device", [str(_SOURCE)], build_directory=str(folder), is_python_module=False, extra_cflags=["-O0", "-w"]
    )
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True  # type: ignore[attr-defined]
    module.device_count = lambda: 1  # type: ignore[attr-defined]
    module.current_device = lambda: 0  # type: ignore[attr-defined]
    module.get_amp_supported_dtype = lambda: []  # type: ignore[attr-defined]
    module.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
    module._is_in_bad_fork = lambda: False  # type: ignore[attr-defined]
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend()
    return True
