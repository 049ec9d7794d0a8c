"""pFedMe: the shared model follows personal ones that are close to it (Dinh et al., 2020).

The personal model looks like Ditto's, the difference is who follows whom: here personal models drive the shared one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.engine.stacked_clients import StackedClients
from holdfast.federated.personalization.base import ROLE, JointPersonalizer
from holdfast.federated.personalization.ditto.proximal import refuse_negative, refuse_overshoot
from holdfast.federated.settings import Rounds


@dataclass(frozen=True)
class PFedMe(JointPersonalizer):
    """Minimises the Moreau envelopes of clients' losses. A client's row is its personal model theta.

    The server's ``w <- (1 - beta) w + beta mean(w_k)`` is ``w + mean(beta (w_k - w))``, so clients send
    ``beta (w_k - w)``.

    Attributes:
        lambda_: strength of the pull of theta towards the client's copy of the shared model.
        inner: gradient steps per batch towards theta.
        beta: share of the clients' mean in the server's new model.
    """

    name: ClassVar[str] = "pfedme"
    lambda_: float = 15.0
    inner: int = 5
    beta: float = 1.0

    def __post_init__(self) -> None:
        refuse_negative(self.lambda_)
        if self.inner < 1:
            raise ConfigError(f"pFedMe's inner is {self.inner}; give at least 1")
        if not self.beta > 0:
            raise ConfigError(f"pFedMe's beta is {self.beta}; give a positive number")

    def check(self, settings: Rounds) -> None:
        """Refuse pulls that overshoot: that of theta, and that of the client's copy towards theta."""
        refuse_overshoot(self.lambda_, settings.personal_rate)
        refuse_overshoot(self.lambda_, settings.learning_rate)

    def train(self, stack: StackedClients, rows: Tensor) -> Tensor:
        """``theta ~ argmin F(theta) + (lambda/2) ||theta - w||^2``, then ``w <- w - eta lambda (w - theta)``."""
        local = stack.copies()
        rows.copy_(local)
        for batch in stack.batches():
            theta, now = rows[: len(batch)], local[: len(batch)]
            for _ in range(self.inner):
                stack.sgd_step(theta, batch, stack.personal_rate, (self.lambda_, now), role=ROLE)
            now.sub_(now - theta, alpha=stack.learning_rate * self.lambda_)
        return local.sub_(stack.received).mul_(self.beta)
