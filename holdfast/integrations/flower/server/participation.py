"""Who was left out, as a fairness number: of the rounds that drew a client, the share in which its update counted.

A server that goes on without slow clients learns from the fast ones. Their accuracy may not show it, since a client
that never took part may be like those that did; its share of rounds does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.federated.engine.selection import select
from holdfast.federated.settings import Rounds

#: Kinds of faults that are slowness: no answer in time, at work on an older order, an answer that came too late.
SLOW = ("silent", "busy", "late")
_SHOWN = 50


def rounds_drawn(settings: Rounds, rounds: int, sizes: Tensor, malicious: Tensor, seed: int | None = None) -> Tensor:
    """How often each client was in a cohort, int64 of shape (clients,): who is drawn follows from seed and round."""
    drawn = torch.zeros(len(sizes), dtype=torch.int64)
    for number in range(rounds):
        drawn[select(settings, number, sizes, malicious, seed)] += 1
    return drawn


def participation(
    drawn: Tensor, counted: Tensor, faults: Sequence[Mapping[str, Any]], accuracy: Tensor, tested: Tensor
) -> dict[str, Any]:
    """What a record says of who took part.

    Args:
        drawn: rounds that drew each client, int64 of shape (clients,).
        counted: rounds in which its update counted.
        faults: what kept clients out, as records have them.
        accuracy: of the shared model at each client, as it reports it.
        tested: which clients have reported one.
    """
    asked = drawn > 0
    share = torch.where(asked, counted.double() / drawn.clamp(min=1), torch.nan)
    slow = Counter(client for fault in faults if fault["kind"] in SLOW for client in fault["clients"])
    rare = asked & (share < 0.5)
    order = [int(client) for client in share.nan_to_num(nan=2.0).argsort(stable=True) if bool(rare[client])]
    left_out = [
        {"client": one, "drawn": int(drawn[one]), "counted": int(counted[one]), "slow": slow[one]}
        for one in order[:_SHOWN]
    ]
    summary = {
        "mean": float(share[asked].mean()) if bool(asked.any()) else None,
        "lowest": float(share[asked].min()) if bool(asked.any()) else None,
        "below_half": int(rare.sum()),
        "slow": sum(1 for client in order if slow[client]),
        "accuracy_below_half": _mean(accuracy[rare & tested]),
        "accuracy_others": _mean(accuracy[asked & ~rare & tested]),
        "left_out": left_out,
    }
    return {**summary, "sentence": _sentence(summary, int(asked.sum()))}


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None


def _sentence(summary: Mapping[str, Any], asked: int) -> str:
    if not asked:
        return "No client was asked."
    said = f"A client's update counted in {100 * summary['mean']:.0f}% of the rounds that drew it, {_lowest(summary)}"
    if not summary["below_half"]:
        return f"{said}."
    who = (
        f"{summary['below_half']} of {asked} clients counted in less than half, {summary['slow']} of them for slowness"
    )
    theirs, others = summary["accuracy_below_half"], summary["accuracy_others"]
    if theirs is None or others is None:
        return f"{said}; {who}."
    return f"{said}; {who} (mean accuracy {100 * theirs:.1f}% against {100 * others:.1f}%, as reported)."


def _lowest(summary: Mapping[str, Any]) -> str:
    return f"and in {100 * summary['lowest']:.0f}% where it did least"
