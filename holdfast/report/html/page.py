"""The skeleton of the page: one file with its style and its script inside, which asks nothing of any network.

The page forbids itself by a content security policy to load or run anything but what is in it: the one script is named
by its hash, so that even markup that slipped in could not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from holdfast.report.html.markup import Html, tag


def page(title: str, *content: Html) -> str:
    """A whole HTML document.

    Args:
        title: of the browser's tab.
        content: what is in the page's body.

    Returns:
        The document.
    """
    style, script = _asset("report.css"), _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style),
    ]
    body = [tag("main", *content), tag("script", script)]
    return "<!DOCTYPE html>\n" + tag("html", tag("head", *head), tag("body", *body), lang="en") + "\n"


def headline(run: Path, status: str, title: str, by: Sequence[Html | str], *below: Html | None) -> Html:
    """What a run's page opens with.

    Args:
        run: the run directory.
        status: ``finished``, ``running`` or ``interrupted``.
        title: what was trained on.
        by: by which method, with which model.
        below: a banner, the large numbers; what is None is left out.

    Returns:
        The header.
    """
    over = tag(
        "div",
        tag("span", f"holdfast run {run.resolve().name}", class_="run"),
        tag("span", status, class_=f"status {status}"),
        class_="over",
    )
    return tag("header", over, tag("h1", title), tag("p", *by, class_="byline"), *below)


def section(title: str, *content: Html | None, id_: str) -> Html:
    """A section with its heading."""
    return tag("section", tag("h2", title, id=f"{id_}-title"), *content, id=id_, aria_labelledby=f"{id_}-title")


def note(*children: str | None) -> Html:
    """A paragraph in small print."""
    return tag("p", *children, class_="note")


def folded(title: str, *content: Html) -> Html:
    """Something that opens when its title is clicked."""
    return tag("details", tag("summary", title), *content)


def code(text: str) -> Html:
    """Lines to copy."""
    return tag("pre", tag("code", text), tabindex=0)


def _asset(name: str) -> Html:
    return Html((files("holdfast.report") / name).read_text("utf-8"))
