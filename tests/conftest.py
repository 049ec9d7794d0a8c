import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
import torch

#: Free bytes from which on temporary files are kept in memory.
_ROOMY = 4 << 30

pytest_plugins = ("tests.tiers", "tests.dealing", "tests.browser")


def pytest_configure() -> None:
    """One thread, here and in processes that tests start: tensors are small and two tests run at a time.

    Started in the background, a shell makes us ignore Ctrl-C, and so would every process that tests interrupt.
    """
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _keep_files_in_memory()


def _keep_files_in_memory() -> None:
    """Temporary files go to a disk of memory where there is a roomy one, unless the user has named another place.

    Runs, checkpoints and what clients remember are synced to the disk at every save. That costs no computing, and a
    test that saves a thousand times waits for minutes on a slow disk.
    """
    memory = Path("/dev/shm")
    if {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys() or not os.access(memory, os.W_OK):
        return
    facts, meminfo = os.statvfs(memory), Path("/proc/meminfo").read_text()
    available = re.search(r"MemAvailable: *(\d+) kB", meminfo)
    free = min(facts.f_bavail * facts.f_frsize, 1024 * int(available[1]) if available else 0)
    if free >= _ROOMY and not facts.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # it is looked up again


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
