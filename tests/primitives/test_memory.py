"""Memory is kept: passes through a network with large outputs take it from the last one and not from the system."""

import ctypes
import statistics
import subprocess
import sys

import pytest

_FAULTS = """
import resource
import torch
{first}
model = torch.nn.Sequential(*(torch.nn.Conv2d(4, 4, 1) for _ in range(6)))
images = torch.zeros(2100, 4, 32, 32)
seen = []
with torch.no_grad():
    for _ in range(9):
        model(images)
        seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(*(after - before for before, after in zip(seen, seen[1:])))
"""

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the setting is glibc's")


def _pages_per_pass(first: str) -> float:
    found = subprocess.run([sys.executable, "-c", _FAULTS.format(first=first)], check=True, capture_output=True)
    return statistics.median(map(int, found.stdout.splitlines()[-1].split()))


def test_after_a_command_large_tensors_cost_no_pages() -> None:
    plain = _pages_per_pass("")
    command = _pages_per_pass("from holdfast.cli.main import main; main(['runs', 'list', '/nowhere'])")
    assert plain > 6 * 32 * 256, "six outputs of over 32 MiB in pages of 4 KiB"
    assert command < plain / 20
