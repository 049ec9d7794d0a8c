"""What trackers draw of an event: numbers by name, the same for all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.training.events import Event

_LONGEST = 120


def scalars(event: Event) -> dict[str, float]:
    """The numbers of an event.

    Args:
        event: of `holdfast.training.fit` or of a federation.

    Returns:
        ``train/loss``, ``train/learning_rate``, ``train/full_epochs``; ``plan/active``; and for each report
        (``validation``, ``test``, ``test_last``) its averages, ``worst_group`` and ``group/<name>``, in [0, 1];
        of a federation ``clients/<model>/mean`` and its like.

    Example:
        >>> scalars(Event("plan", 2, 40, {"active": 12, "of": 50}))
        {'plan/active': 12.0, 'plan/active_share': 0.24}
    """
    values = event.values
    scalars: dict[str, Any] = {}
    if event.kind == "plan":
        scalars = {"plan/active": values["active"], "plan/active_share": values["active"] / values["of"]}
    elif event.kind == "epoch":
        scalars = {f"train/{name}": values.get(name) for name in ("loss", "learning_rate", "full_epochs", "stage")}
        scalars |= {"validation/score": values.get("score"), **_report("validation", values.get("validation"))}
    elif event.kind == "end":
        for name in ("test", "test_last"):
            scalars |= _report(name, values.get(name))
        scalars |= {"best/epoch": values.get("best_epoch"), "best/full_epochs": values.get("best_full_epochs")}
    if event.kind in ("epoch", "end"):
        for label, summary in values.items():
            if isinstance(summary, Mapping) and "worst_tenth" in summary:  # how a federation's clients fare
                scalars |= {f"clients/{label}/{name}": value for name, value in summary.items()}
    return {name: float(value) for name, value in scalars.items() if isinstance(value, (int, float))}


def safe_names(names: Sequence[str]) -> list[str]:
    """Names that every tracker takes, all different: letters, digits, ``_``, ``-``, ``.`` and spaces.

    Args:
        names: as the data set has them.

    Returns:
        One for each.

    Example:
        >>> safe_names(["land/bird", "land_bird", "é?"])
        ['land_bird', 'land_bird.2', '__']
    """
    made: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_.\- ]", "_", name)[:_LONGEST].strip() or "_"
        copy, number = plain, 1
        while copy in made:
            number += 1
            copy = f"{plain}.{number}"
        made.append(copy)
    return made


def _report(prefix: str, report: Mapping[str, Any] | None) -> dict[str, Any]:
    if report is None:
        return {}
    groups = report["groups"]
    named = zip(safe_names([group["name"] for group in groups]), groups, strict=True)
    return {
        **{f"{prefix}/{name}": value for name, value in report["averages"].items()},
        f"{prefix}/worst_group": report["worst_accuracy"],
        **{f"{prefix}/group/{name}": group["accuracy"] for name, group in named},
    }
