"""What a method does besides choosing examples, for loops that aren't `fit`: a loss of its own, and a last step.

A curator hands out mini-batches, which is all of most methods. GroupDRO, CVaR, PGI, CnC and LfF are also, or only, a
loss; DFR is a last step. `fit` uses both. A loop of one's own has to, and nothing in its numbers tells that it doesn't.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from torch import nn

from holdfast.data.examples import Examples
from holdfast.errors import HoldfastWarning
from holdfast.training.objective import CrossEntropy, NewOptimizer, Objective
from holdfast.training.policy import Chain, Policy


class OwnLoss:
    """The loss that belongs to a chain of policies, prepared once for the stage that it is used in.

    Args:
        chain: the policies.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._objective: Objective | None = None
        self._used = self._told = False

    def prepared(
        self, examples: Examples, model: nn.Module | None, new_optimizer: NewOptimizer | None, *, warming_up: bool
    ) -> Objective:
        """The loss for now: the cross-entropy until the warm-up is over.

        Args:
            examples: the training set, with the groups that were inferred, where a policy did.
            model: with the weights that the stage starts from.
            new_optimizer: makes an optimizer for a second network, where the loss has one.
            warming_up: whether a policy is still to start training again.
        """
        self._used = True
        if warming_up:
            return CrossEntropy()
        if self._objective is None:
            self._objective = self._chain.objective() or CrossEntropy()
            self._objective.prepare(examples, model, new_optimizer)
        return self._objective

    def used(self) -> None:
        """The loop looks at mini-batches as a loss of its own does."""
        self._used = True

    def warn_if_left_out(self, *, last: bool) -> None:
        """Say once that a loop trains with another loss than its method has, and at the end what `fit` would still do.

        Args:
            last: whether the last epoch is over.
        """
        if not self._used and not self._told and (names := self._named(_has_loss_of_its_own)):
            self._told = True
            warnings.warn(
                f"{names} has a loss of its own, which this loop doesn't use, so only its choice of examples acts; in "
                "each epoch take objective = curator.objective(model), and for each batch of the curator "
                "loss = objective(Forward(model, curator.shared(batch), clock=curator.clock))",
                HoldfastWarning,
                stacklevel=4,
            )
        if last and (names := self._named(lambda member: member.post_training() is not None)):
            warnings.warn(
                f"{names} changes the model after training, which a curator doesn't do; train with holdfast.fit",
                HoldfastWarning,
                stacklevel=4,
            )

    def _named(self, has: Callable[[Policy], bool]) -> str:
        return " and ".join(member.name for member in self._chain.members if has(member))


def _has_loss_of_its_own(member: Policy) -> bool:
    """Whether a loop with the plain cross-entropy trains another model; one that only writes losses down doesn't."""
    return not isinstance(member.objective(), CrossEntropy | None)
