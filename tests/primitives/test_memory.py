"""Memory is kept: passes through a network with large outputs take it from the last one and not from the system."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.papers.engine.execute import execute
from holdfast.papers.engine.experiment import Cell
from tests.primitives.page_count import ALL_OUTPUTS

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the setting is glibc's")


def _pages_after(first: str) -> float:
    code = f"import torch; {first}; from tests.primitives.page_count import pages_per_pass as count; print(count())"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return float(output.stdout.splitlines()[-1].split(": ")[1].rstrip("}"))


def test_after_a_command_large_tensors_cost_no_pages() -> None:
    assert _pages_after("pass") > ALL_OUTPUTS
    assert _pages_after("from holdfast.cli.main import main; main(['runs', 'list', '/nowhere'])") < ALL_OUTPUTS / 20


def test_in_a_worker_of_reproduce_they_cost_none_either(tmp_path: Path) -> None:
    cell = Cell("pages", "tests.primitives.page_count:pages_per_pass", {})
    (outcome,) = execute([cell], (0,), cache=tmp_path, jobs=1)
    assert outcome.metrics is not None
    assert outcome.metrics["pages"] < ALL_OUTPUTS / 20
