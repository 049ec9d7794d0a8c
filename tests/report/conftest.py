from __future__ import annotations

import os
import shutil

import pytest

from holdfast.report import write_report

from .reading import read_page
from .toy import Shrinking, toy_run, toy_splits

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)


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


@pytest.fixture(scope="session")
def browser():
    executable = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if executable is None:
        reason = f"none of {', '.join(_BROWSERS)} is on the path"
        if os.environ.get("HOLDFAST_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason} and HOLDFAST_REQUIRE_BROWSER is 1")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=_OPTIONS.split())
        yield launched
        launched.close()
