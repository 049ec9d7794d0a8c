from __future__ import annotations

import pytest

from holdfast.report import write_report

from .reading import read_page
from .toy import Shrinking, toy_run, toy_splits


@pytest.fixture(scope="session")
def splits():
    return toy_splits()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of plain training."""
    return toy_run(tmp_path_factory.mktemp("runs") / "plain")


@pytest.fixture(scope="session")
def shrinking(tmp_path_factory):
    """A finished run whose plan changed every epoch."""
    return toy_run(tmp_path_factory.mktemp("runs") / "shrinking", Shrinking())


@pytest.fixture(scope="session")
def page(finished, splits):
    """The page of the finished run, with its data at hand."""
    return read_page(write_report(finished, splits).read_text())
