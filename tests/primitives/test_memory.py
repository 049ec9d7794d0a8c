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


def test_after_a_command_large_tensors_cost_no_pages() -> None:
    code = """
from tests.primitives.page_count import pages_per_pass
from holdfast.cli.main import main
before = pages_per_pass()
main(["runs", "list", "/nowhere"])
print(before["pages"], pages_per_pass()["pages"])
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    before, after = map(float, output.stdout.splitlines()[-1].split())
    assert before > ALL_OUTPUTS
    assert after < ALL_OUTPUTS / 20


def test_in_a_worker_of_reproduce_they_cost_none_either(tmp_path: Path) -> None:
    cell = Cell("pages", "tests.primitives.page_count:pages_per_pass", {})
    (outcome,) = execute([cell], (0,), cache=tmp_path, jobs=1)
    assert outcome.metrics is not None
    assert outcome.metrics["pages"] < ALL_OUTPUTS / 20
