"""What a page says before its numbers: whether they are to be trusted, why not, and what to do."""

from __future__ import annotations

from holdfast.report.html.markup import Html, tag
from holdfast.report.html.page import folded
from holdfast.training.health.check import Finding, Health


def health_banner(health: Health | None) -> Html | None:
    """The verdict with every concern and its remedy; None where nothing was looked at, as in runs of older versions.

    Args:
        health: what was found.
    """
    if health is None or not health.findings:
        return None
    every = folded("Every check", tag("ul", *(tag("li", *_row(one)) for one in health.findings)))
    if health.verdict == "ok":
        return tag("div", tag("p", health.headline, class_="note"), every, class_="health ok")
    remedies = [tag("li", _capital(one.sentence), ". ", tag("b", _capital(one.remedy)), ".") for one in health.concerns]
    strong = tag("p", tag("b", f"{health.judgement}:"))
    return tag("div", strong, tag("ul", *remedies), every, class_=f"banner health {health.verdict}")


def _row(finding: Finding) -> list[Html | str]:
    return [tag("b", finding.check), f": {finding.verdict}; {finding.sentence}. Limit: {finding.reason}."]


def _capital(clause: str) -> str:
    return _joined(clause[:1].upper() + clause[1:])


def _joined(sentence: str) -> str:
    """A sentence in which no line begins with a per cent sign."""
    return sentence.replace(" %", "\N{NO-BREAK SPACE}%")
