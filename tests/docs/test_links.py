"""Links and file names in the documentation lead somewhere."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.docs.pages import PAGES, ROOT, name_of, prose

_LINK = re.compile(r"\]\((?!https?://|mailto:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_FILE = re.compile(r"`((?:holdfast|tests|docs|benchmarks)/[\w./-]+\.\w+)`")
_NAME = re.compile(r"`(holdfast(?:\.\w+)+)`")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page):
    for link in _LINK.finditer(prose(page)):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), f"{name_of(page)} links to {link['path']}, which isn't there"
        if link["anchor"]:
            assert link["anchor"] in anchors(target.read_text()), f"{name_of(page)}: no heading {link['anchor']}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_in_backticks_exist(page):
    missing = [file for file in _FILE.findall(prose(page)) if not (ROOT / file).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_and_objects_named_in_backticks_exist(page):
    for name in _NAME.findall(prose(page)):
        assert exists(name), f"{name_of(page)} names {name}, which holdfast doesn't have"


def test_every_page_is_reachable_from_the_index():
    seen, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        waiting += [page.parent / link["path"] for link in _LINK.finditer(prose(page)) if link["path"]]
    assert {page for page in PAGES if page.parent != ROOT} <= seen


def exists(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[cut:])
    return False
