"""A page as a browser would see it: elements, their text, and a complaint where tags don't match."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"img", "link", "meta"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, name: str, **wanted: str) -> list[Element]:
        """Descendants called `name` (or any, for ``*``) whose attributes contain the wanted words."""
        found = []
        for child in self.children:
            fits = all(value in (child.attributes.get(key.rstrip("_")) or "").split() for key, value in wanted.items())
            if name in ("*", child.name) and fits:
                found.append(child)
            found += child.all(name, **wanted)
        return found

    def one(self, name: str, **wanted: str) -> Element:
        (found,) = self.all(name, **wanted)
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("document", {})]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element.texts.append(data)


def read_page(text: str) -> Element:
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].name}> is never closed"
    return parser.open[0]
