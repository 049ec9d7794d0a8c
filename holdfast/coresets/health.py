"""Whether choosing what to train on costs less than it can gain."""

from __future__ import annotations

from holdfast.coresets.accounting import Accounts
from holdfast.training.health.check import Check, Finding

#: A backward pass costs about twice a forward pass, so a training step is three.
_BACKWARD = 2
COST = Check(
    "cost of choosing",
    1.0,
    None,
    "above",
    "for the same computation plain training could go through as many examples again, drawn at random",
    "use stratified mini-batches (--method stratified), which choose nothing and were better at equal time wherever it "
    "was measured; or choose from smaller subsets, and less often",
)


def cost_of_choosing(accounts: Accounts, trained: int) -> Finding:
    """Computation for choosing and checking, in units of the training's own.

    Args:
        accounts: what the method kept.
        trained: examples that were trained on, repetitions counted.
    """
    choosing = accounts.forward + _BACKWARD * accounts.backward
    ratio = choosing / max((1 + _BACKWARD) * trained, 1)
    return COST.finding(ratio, f"choosing took {ratio:.2f} times the computation of the training itself")
