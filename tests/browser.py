"""A headless browser for the tests of pages; skipped where there is none, unless CI says that there must be one."""

from __future__ import annotations

import os
import shutil

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)


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
