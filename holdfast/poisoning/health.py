"""Whether what a defence drops can be poisons rather than rare people."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.training.health.check import Check, Finding
from holdfast.training.health.observed import Observed

SHARE = Check(
    "share that was dropped",
    0.3,
    0.5,
    "above",
    "poisons are few by assumption: where most examples stand alone, standing alone says nothing",
    "drop less: start later, stop earlier, or lower the share, fraction or threshold",
)
CONCENTRATION = Check(
    "drops in one group",
    3.0,
    None,
    "above",
    "isolated gradients are poisons or rare people; a group that loses three times its share is more likely the "
    "latter, and poisons may sit in one group too, so this only doubts",
    "look at what was dropped before you use the model (epic.parquet, or the plans of the run); start later, or drop "
    "less",
)
_AT_LEAST = 5  # drops in a group: fewer are chance


def drops(name: str, dropped: Tensor, observed: Observed) -> list[Finding]:
    """How much is gone, and whether it falls on one group: of those that are known, else that were inferred.

    Args:
        name: of the defence.
        dropped: bool of shape (n,).
        observed: what the run has observed.
    """
    found, labels = [dropped_share(name, dropped)], observed.examples.labels
    if observed.attributes is not None:
        found.append(concentration(dropped, labels, observed.attributes))
    elif observed.plan.groups is not None:
        found.append(concentration(dropped, labels, observed.plan.groups, "inferred group"))
    return found


def dropped_share(name: str, dropped: Tensor) -> Finding:
    """How much of the training set is gone.

    Args:
        name: of the defence.
        dropped: bool of shape (n,).
    """
    share = float(dropped.double().mean())
    return SHARE.finding(share, f"{name} dropped {int(dropped.sum()):,} of {len(dropped):,} examples")


def concentration(dropped: Tensor, labels: Tensor, attributes: Tensor, word: str = "attribute") -> Finding:
    """The rate of drops in the known group that lost most of itself, against the rate of all others.

    Groups that lost fewer than five examples are left out.

    Args:
        dropped: bool of shape (n,).
        labels: int64 of shape (n,).
        attributes: int64 of shape (n,); or inferred groups.
        word: what they are.
    """
    cells, cell = torch.unique(torch.stack([labels, attributes]), dim=1, return_inverse=True)
    sizes = torch.bincount(cell).double()
    drops = torch.bincount(cell, weights=dropped.double(), minlength=len(sizes))
    rates = torch.where(drops >= _AT_LEAST, drops / sizes, 0.0)
    most = int(rates.argmax())
    others = float(drops.sum() - drops[most]) / max(float(sizes.sum() - sizes[most]), 1.0)
    ratio = 0.0 if rates[most] == 0 else float(rates[most]) / max(others, 1 / len(labels))
    label, attribute = cells[:, most].tolist()
    return CONCENTRATION.finding(
        ratio,
        f"{100 * float(drops[most] / sizes[most]):.0f} % of class {label} with {word} {attribute} were dropped "
        f"({int(drops[most])} of {int(sizes[most])}), and {100 * others:.0f} % of the others",
    )
