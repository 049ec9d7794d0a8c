import os
import signal
from pathlib import Path

import pytest
import torch

pytest_plugins = ("tests.tiers",)


def pytest_configure() -> None:
    """One thread, here and in processes that tests start: tensors are small and two tests run at a time.

    Started in the background, a shell makes us ignore Ctrl-C, and so would every process that tests interrupt.
    """
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets, from HOLDFAST_SHARED_DATA or beside the repository; skips where it is missing."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HOLDFAST_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}")
    return folder


@pytest.fixture
def marks(tmp_path):
    """Where toy cells leave a file per execution."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of cells of the test's own."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cells"
