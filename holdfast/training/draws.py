"""Which examples each optimizer step takes while a plan is in force.

Everything here is a function of plan, seed and the step at which the plan was adopted, so that the same epoch can be
looked at twice, and a resumed run needs no generator's state. What depends on the plan alone is decided once, when it
is adopted, and not at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from holdfast.training.batches import Drawn
from holdfast.training.plan import Plan
from holdfast.training.sampling_order import SamplingOrder


class Draws:
    """The draws of one plan.

    Args:
        plan: what to train on.
        n: how many examples there are.
        seed: names the random stream, with `since`.
        since: the optimizer step at which the plan was adopted.
        batch_size: examples per optimizer step, unless the plan fixes mini-batches itself.

    Attributes:
        since: as given.
        step_size: examples of a full optimizer step.
    """

    def __init__(self, plan: Plan, n: int, seed: int, since: int, batch_size: int) -> None:
        self.since = since
        self.step_size = batch_size if plan.batches is None else plan.batches.shape[1]
        self._plan = plan
        self._n = n
        self._seed = seed
        self._unit_weights: dict[int, Tensor] = {}

    @cached_property
    def order(self) -> SamplingOrder:
        """Made when first needed: it is as long as the training set."""
        return SamplingOrder(self._plan, self._n, self._seed, self.since)

    def next_size(self, left: int) -> int:
        """How many draws the next mini-batch takes; a lone last example joins it, as batch norm can't train on one."""
        size = self.step_size
        return left if left <= size + 1 else size

    def taken(self, size: int) -> int:
        """How far a mini-batch of `size` examples moves on in the order of draws."""
        return size if self._plan.batches is None else 1

    def steps(self, draws: int) -> int:
        """Mini-batches that so many draws make."""
        whole, rest = divmod(draws, self.step_size)
        return whole + (rest > 1 or (rest == 1 and whole == 0))

    def upcoming(self, drawn: int, left: int, step: int) -> Iterator[Drawn]:
        """The mini-batches of the rest of an epoch.

        Args:
            drawn: draws that were taken since the plan was adopted.
            left: draws that are left in the epoch.
            step: the optimizer step of the first.
        """
        while left > 0:
            size = self.next_size(left)
            yield self._draw(drawn, size, step)
            drawn, left, step = drawn + self.taken(size), left - size, step + 1

    def positions(self, drawn: int, left: int) -> Tensor:
        """Positions drawn in the rest of an epoch, in order, int64."""
        if self._plan.batches is not None:
            return self._plan.batches[self.order.take(drawn, self.steps(left))].flatten()
        return self.order.take(drawn, left)

    def _draw(self, drawn: int, size: int, step: int) -> Drawn:
        plan, weights, given = self._plan, None, None
        if plan.batches is not None:
            row = self.order.take(drawn, 1)[0]
            positions = plan.batches[row]
            weights = None if plan.batch_weight is None else plan.batch_weight[row]
            given = None if plan.batch_inputs is None else plan.batch_inputs[row]
        else:
            positions = self.order.take(drawn, size)
        if plan.loss_weight is not None:
            weighed = plan.loss_weight[positions]
            weights = weighed if weights is None else weights * weighed
        return Drawn(step, positions, self._ones(positions.shape[0]) if weights is None else weights, given)

    def _ones(self, size: int) -> Tensor:
        if size not in self._unit_weights:
            self._unit_weights[size] = torch.ones(size)
        return self._unit_weights[size]
