"""The skeleton of the page: one file with its style and its script inside, which asks nothing of any network.

The page forbids itself by a content security policy to load or run anything but what is in it: the one script is named
by its hash, so that even markup that slipped in could not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from holdfast.files import write_atomically
from holdfast.report.html.markup import Html, tag


def write_page(path: Path, title: str, *content: Html | None) -> Path:
    """Write a page as a whole or not at all.

    Args:
        path: the file; its folder must exist.
        title: of the browser's tab.
        content: what is in the page's body; what is None is left out.

    Returns:
        The file.

    Raises:
        CheckpointError: if the page can't be written; an earlier one is left alone.
    """
    write_atomically(path, page(title, *(part for part in content if part is not None)).encode())
    return path


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
    return opening(f"holdfast run {run.resolve().name}", status, title, by, *below, class_=f"status {status}")


def opening(
    over: str, beside: str, title: str, by: Sequence[Html | str], *below: Html | None, class_: str | None = None
) -> Html:
    """What any page opens with.

    Args:
        over: what kind of page it is, in small print over the title.
        beside: a word at the other end of that line: a part of the data, a status.
        title: what it is about.
        by: how it was made, in a clause.
        below: the large number, banners; what is None is left out.
        class_: how the word looks.

    Returns:
        The header.
    """
    line = tag("div", tag("span", over, class_="run"), tag("span", beside, class_=class_), class_="over")
    return tag("header", line, tag("h1", title), tag("p", *by, class_="byline"), *below)


def hero(large: Html, *beside: Html) -> Html:
    """The large number with what stands beside it: a list of findings, smaller numbers."""
    return tag("div", large, *beside, class_="hero")


def large_number(
    what: str, value: str, unit: str | None, who: Sequence[Html | str | None], *below: Html | None
) -> Html:
    """The number that a page is about.

    Args:
        what: the quantity, above it.
        value: the number.
        unit: behind it, smaller; None where it counts things.
        who: whose number it is, in a line below.
        below: more about it; what is None is left out.

    Returns:
        The block.
    """
    return tag(
        "div",
        tag("p", what, class_="what"),
        tag("p", value, None if unit is None else tag("small", unit), class_="number"),
        tag("p", *who, class_="who"),
        *below,
    )


def findings(*sentences: str | Html | None) -> Html:
    """A list of findings, an item each; what is None is left out."""
    return tag("ul", *(tag("li", sentence) for sentence in sentences if sentence), class_="findings")


def commands_to_copy(commands: Mapping[str, str]) -> list[Html]:
    """Lines to copy, each under what it is for."""
    return [part for title, line in commands.items() for part in (tag("h3", title), code(line))]


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
