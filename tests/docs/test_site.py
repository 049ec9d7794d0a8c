"""The documentation site: pages have a place, links lead somewhere, search finds pages, and nothing is fetched."""

from __future__ import annotations

import importlib.util
import re
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, name_of, prose

pytest.importorskip("mkdocs")

_spec = importlib.util.spec_from_file_location("website", ROOT / "docs" / "website.py")
website = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(website)

#: What people ask, and the page that should be among the first five answers.
QUESTIONS = {
    "resume a killed run": "guides/runs-and-resume.html",
    "own csv table": "guides/your-own-data.html",
    "worst group accuracy": "guides/reading-a-group-report.html",
    "multi-krum": "methods/robust-aggregation.html",
    "onnx export": "guides/use-a-trained-model.html",
    "ditto lambda": "methods/ditto.html",
    "fine-tuning data half": "guides/halve-your-fine-tuning-data.html",
    "lightning trainer": "guides/frameworks.html",
    "vulnerability": "security.html",
    "curator three lines loop": "guides/your-own-loop.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built as `make site` does: strict, so that a link or a page without a place ends it."""
    return website.build(tmp_path_factory.mktemp("site"))


def leaves(entries):
    for entry in entries:
        ((_, value),) = entry.items()
        if isinstance(value, list):
            yield from leaves(value)
        else:
            yield value


def navigation():
    return yaml.safe_load(website.CONFIG.read_text().partition("\nnav:\n")[2])


def test_the_navigation_names_every_page_once():
    named = list(leaves(website.navigation(navigation())))
    pages = {website.place(page) for page in PAGES if page.parent != ROOT} | set(website.OUTSIDE.values())
    notebooks = {website.place(notebook) for notebook in (ROOT / "docs").rglob("*.ipynb")}
    assert sorted(named) == sorted(pages | notebooks | set(website.reference_pages()))


def test_a_link_that_leaves_the_documentation_leads_to_its_place_in_the_site():
    source = ROOT / "docs" / "guides" / "reproduce.md"
    text = "[a](../README.md) [b](../../CONTRIBUTING.md#commits) [c](https://x.test/README.md) `[d](../README.md)`"
    expected = "[a](../index.md) [b](../contributing.md#commits) [c](https://x.test/README.md) `[d](../README.md)`"
    assert website.rewritten(text, source) == expected


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_addresses_of_other_sites_are_well_formed(page):
    for address in re.findall(r"\]\(((?:https?|mailto):[^)]*)\)", prose(page)):
        assert re.fullmatch(r"https?://[\w.-]+\.\w{2,}(:\d+)?(/[^\s<>\"]*)?|mailto:[^\s@]+@[\w.-]+", address), address


def test_links_and_anchors_of_every_built_page_lead_somewhere(site):
    pages = {page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"}
    ids = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    assert len(pages) > 100
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            if re.match(r"\w+:|//", link):
                assert not link.startswith("//"), link
                continue
            path, anchor = urldefrag(unquote(link))
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.relative_to(site)} links to {link}"
            if anchor and target in ids and not anchor.startswith("__"):
                assert anchor in ids[target], f"{page.relative_to(site)} links to {link}"


def test_a_page_of_the_site_has_what_the_repository_shows(site):
    """Lists without a blank line before them, and tables, are where markdown for a repository and for a site part."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    for page in PAGES:
        if page.parent == ROOT:
            continue
        tokens = [token.type for token in markdown.parse(page.read_text())]
        built = (site / website.place(page)).with_suffix(".html").read_text()
        body = built.partition("<article")[2].partition("</article>")[0]
        body = body.partition('<nav class="md-tags"')[0]
        for kind, tag in {"list_item_open": "li", "tr_open": "tr", "heading_open": r"h[1-6]"}.items():
            assert len(re.findall(rf"<{tag}[ >]", body)) == tokens.count(kind), f"{name_of(page)}: {tag}"


def test_every_public_name_is_on_a_page_of_the_reference(site):
    for package in website.REFERENCE:
        text = (site / "reference" / f"{package}.html").read_text()
        for name in website.public_names(package):
            assert package == "holdfast" or f".{name}" in text, f"holdfast.{package}.{name}"


@pytest.mark.browser
def test_search_works_without_a_server_and_nothing_is_fetched(site, browser):
    page = browser.new_page()
    asked, broken = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    missing = {}
    page.set_default_timeout(60_000)  # of a machine that does much else
    for question, answer in QUESTIONS.items():
        for words, shown in (("", "! /[0-9]/"), (question, "/[0-9]/")):  # how many answers there are
            page.fill("input.md-search__input", words)
            page.press("input.md-search__input", "End")  # the search listens to keys
            page.wait_for_function(f"{shown}.test(document.querySelector('.md-search-result__meta').textContent)")
        found = page.eval_on_selector_all("a.md-search-result__link", "links => links.map(link => link.href)")
        pages = list(
            dict.fromkeys(urldefrag(link)[0].removeprefix(site.as_uri() + "/").partition("?")[0] for link in found)
        )
        if answer not in pages[:5]:
            missing[question] = pages[:5]
    outside = [url for url in asked if not url.startswith((site.as_uri(), "data:", "about:"))]
    assert (missing, outside, broken) == ({}, [], [])
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_screen_in_both_colours(site, browser, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for name in ("index", "results/crest/table2.1.cpu", "methods/crest", "reference/federated", "notebooks/federation"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(int(part) for part in re.findall(r"\d+", background)[:3]) < 3 * 128
    assert dark == (scheme == "dark")
    context.close()
