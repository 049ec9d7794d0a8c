"""Stratified random mini-batches: every class in every mini-batch in its proportion, and nothing chosen.

A mini-batch of random examples has a few too many of one class and too few of another; the gradient follows that luck.
Drawing each class in proportion takes the part of the gradient's variance away that lies between classes, costs nothing
(no forward pass), and is most of what mini-batch coresets gained over random ones in our measurements. So it is what
any method that chooses has to be compared with, and a sensible default for training with few steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy


@dataclass(frozen=True)
class Stratified(Policy):
    """Draws each class in proportion, without repetition within a class until all of it was drawn."""

    name: ClassVar[str] = "stratified"

    def update(self, context: Context) -> Plan:
        """The classes as strata of the order of draws; what is drawn, and how often, is left to other policies."""
        return Plan(strata=context.examples.labels)
