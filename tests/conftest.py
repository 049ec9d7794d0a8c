import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets, from HOLDFAST_SHARED_DATA or beside the repository; skips where it is missing."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HOLDFAST_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}")
    return folder
