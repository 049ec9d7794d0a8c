"""Whether contrastive terms have something to contrast: a mini-batch must hold partners for its examples."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.training.health.check import Check, Finding

PAIRS = Check(
    "pairs of a contrastive term",
    2.0,
    0.5,
    "below",
    "an anchor without a partner in its mini-batch adds nothing to the term; with two expected partners one in seven "
    "has none, with half a partner six in ten",
    "take larger mini-batches (--batch-size, --accumulate), draw groups evenly (--spurious-aware.sampling balanced), "
    "or turn the term off",
)


def partners(values: Tensor, weights: Tensor, batch_size: int, term: str) -> Finding:
    """How many others of its kind an example of the rarest kind meets in a mini-batch, in the mean.

    Args:
        values: what partners share, int64 of shape (n,).
        weights: probability of each example in a draw, up to a factor; float of shape (n,).
        batch_size: examples per step.
        term: what needs the pairs.
    """
    mass = torch.bincount(values, weights=weights.double())
    shares = mass[mass > 0] / mass.sum()
    rarest = float(shares.min())
    expected = (batch_size - 1) * rarest
    return PAIRS.finding(
        expected,
        f"in a mini-batch of {batch_size} an example of the rarest kind ({100 * rarest:.1f} % of the draws) meets "
        f"{expected:.1f} others that the {term} pairs it with",
    )
