"""The pages of the documentation, cut into headings, links and code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: what stands behind the opening fence.
        body: the lines between the fences.
        line: of the page, from 1, that the body starts on.
        follows: language of the block before, if nothing but blank lines is in between.
    """

    language: str
    body: str
    line: int
    follows: str | None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        adjacent = bool(found) and not text[end : match.start()].strip()
        line = text.count("\n", 0, match.start("body")) + 1
        found.append(Block(match["language"], match["body"], line, found[-1].language if adjacent else None))
        end = match.end()
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())
