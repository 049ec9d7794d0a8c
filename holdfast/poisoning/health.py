"""Whether what EPIC drops can be poisons rather than rare people."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.training.health.check import Check, Finding

SHARE = Check(
    "share that was dropped",
    0.3,
    0.5,
    "above",
    "poisons are few by assumption: where most examples stand alone, standing alone says nothing",
    "lower the fraction, start later, or stop earlier",
)
CONCENTRATION = Check(
    "drops in one group",
    3.0,
    None,
    "above",
    "isolated gradients are poisons or rare people; a group that loses three times its share is more likely the "
    "latter, and poisons may sit in one group too, so this only doubts",
    "look at what was dropped (epic.parquet) before you use the model; start later, or lower the fraction",
)
_AT_LEAST = 5  # drops in a group: fewer are chance


def dropped_share(dropped: Tensor) -> Finding:
    """How much of the training set is gone.

    Args:
        dropped: bool of shape (n,).
    """
    share = float(dropped.double().mean())
    return SHARE.finding(share, f"epic dropped {int(dropped.sum()):,} of {len(dropped):,} examples")


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
