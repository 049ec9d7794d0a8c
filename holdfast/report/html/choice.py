"""What a page says first of a method that ``--method auto`` chose: which, why, and what the others did."""

from __future__ import annotations

from holdfast.auto.record import Choice, Try
from holdfast.report.html.markup import Html, duration, percent, tag
from holdfast.report.html.page import folded


def choice_banner(choice: Choice | None) -> Html | None:
    """The choice with its reason and every try; None where the method was named."""
    if choice is None:
        return None
    cost = f" Choosing took {duration(choice.seconds)} of the processor, {choice.epochs} epochs per method."
    said = tag("p", "auto chose ", tag("b", choice.method), ". ", choice.why, cost, class_="note")
    every = folded("Every method that was tried", tag("ul", *(tag("li", *_row(one)) for one in choice.tries)))
    return tag("div", said, every, class_="choice")


def _row(one: Try) -> list[Html | str]:
    name = tag("b", one.method)
    if one.refused:
        return [name, f": not tried; {one.refused}"]
    gain = f", {100 * one.gain:+.1f} points over plain training, at least {100 * one.low:+.1f}"
    numbers = f": worst part of validation {percent(one.score)}{'' if one.method == 'erm' else gain}"
    return [name, f"{numbers}; all of it {percent(one.accuracy)}; health {one.health}; {duration(one.seconds)}"]
