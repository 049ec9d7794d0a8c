"""L2SGD: personal models pulled towards their mean (Hanzely and Richtarik, 2020), with partial participation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, JointPersonalizer
from holdfast.federated.personalization.ditto.proximal import refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class L2Sgd(JointPersonalizer):
    """Minimises ``F_k(v_k) + (lambda/2) ||v_k - mean of all v||^2``; the shared model is that mean.

    The server adds the average of what m clients send, and the mean over K clients moves by 1/K of the sum of their
    changes. So a client sends m/K times its change.

    Attributes:
        lambda_: strength of the proximal term towards the mean.
        reference: send the way from the mean to the new model instead of the model's change, as the authors' program
            of Ditto does; the shared model is then no longer the exact mean.
    """

    name: ClassVar[str] = "l2sgd"
    lambda_: float = 1.0
    reference: bool = False

    def __post_init__(self) -> None:
        refuse_negative(self.lambda_)

    def check(self, settings: Rounds) -> None:
        """Refuse a proximal term that overshoots."""
        refuse_overshoot(self.lambda_, settings.personal_rate)

    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """``v <- v - eta (g + lambda (v - mean))``, with the mean as it was received."""
        mean = stack.received
        before = mean if self.reference else rows.clone()
        for batch in stack.batches():
            stack.sgd_step(rows[: len(batch)], batch, stack.personal_rate, (self.lambda_, mean), role=ROLE)
        return (rows - before).mul_(stack.training.participation)
