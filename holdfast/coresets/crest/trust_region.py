"""The region of weights in which a choice of mini-batches holds: where a quadratic model predicts the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.coresets.accounting import Accounts
from holdfast.coresets.crest.gradient_proxies import GradientProxies, Statistics, gradient_proxies, weighted_loss
from holdfast.coresets.crest.quadratic import QuadraticModel
from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.models.heads import find_head
from holdfast.primitives.curvature import flat, gradient_and_diagonal, gradient_of

CurvatureOf = Literal["all", "head"]
Anchor = Literal["paired", "coreset"]


@dataclass(frozen=True, eq=False)
class TrustRegionSettings:
    """What a trust region is about.

    Attributes:
        model: the model, as it is now.
        examples: the training set.
        head: name of the model's last linear layer where it can't be found.
        statistics: what batch norm goes by.
    """

    model: nn.Module
    examples: Examples
    head: str | None = None
    statistics: Statistics = "batch"


class TrustRegion:
    """A quadratic model of the loss around the weights at which mini-batches were chosen, and its test.

    Args:
        order: 1 leaves the curvature out.
        memory: how much stays of the averages of gradient and curvature over time; none to go without averages.
        curvature_of: the weights that the model is a function of.
        draws: random probes per mini-batch.
        anchor: the loss at the point of choice: of the subsets that are checked later, or of the mini-batches.
        checked: how many subsets the loss is checked on.

    Attributes:
        reference: positions of these subsets.
    """

    def __init__(
        self,
        *,
        order: int,
        memory: tuple[float, float] | None,
        curvature_of: CurvatureOf,
        draws: int,
        anchor: Anchor,
        checked: int,
    ) -> None:
        self._order = order
        self._curvature_of = curvature_of
        self._draws = draws
        self._anchor = anchor
        self._checked = checked
        self._model = QuadraticModel(order=order, memory=memory)
        self.reference: list[Tensor] = []

    @property
    def curvature_norm(self) -> float:
        """How curved the loss is at the point of choice; 0 for a model of order 1."""
        return self._model.curvature_norm

    def begin(
        self,
        here: TrustRegionSettings,
        batches: Tensor,
        weights: Tensor,
        *,
        proxies: list[GradientProxies],
        probes: list[torch.Generator],
        accounts: Accounts,
    ) -> None:
        """Model the loss around the weights as they are.

        Args:
            here: model and data.
            batches: the chosen mini-batches, int64 of shape (P, m).
            weights: of their examples, shape (P, m).
            proxies: losses of the random subsets that they stand for.
            probes: a random stream per mini-batch.
            accounts: where the work is written down.
        """
        self.reference = [one.positions for one in proxies[: self._checked]]
        parameters = self._parameters(here)
        losses, slopes = list[float](), list[tuple[Tensor, Tensor]]()
        with accounts.timed("model"):
            for positions, weight, stream in zip(batches, weights, probes, strict=True):
                loss = weighted_loss(here.model, here.examples, positions, weight, here.statistics)
                losses.append(float(loss.detach()))
                if self._order == 1:
                    gradient = gradient_of(loss, parameters)
                    slopes.append((gradient, torch.zeros_like(gradient)))
                else:
                    slopes.append(gradient_and_diagonal(loss, parameters, stream, self._draws))
            paired = _mean_loss(proxies[: self._checked])
            self._model.begin(flat(parameters), paired if self._anchor == "paired" else sum(losses) / len(losses))
            for gradient, diagonal in slopes:
                self._model.add(gradient, diagonal)
        accounts.forward += batches.numel()
        accounts.backward += batches.numel() * (1 if self._order == 1 else 1 + self._draws)

    def error(self, here: TrustRegionSettings, step: int, accounts: Accounts) -> float:
        """rho: by how much of the loss its model is off at the weights as they are, on the same examples."""
        with accounts.timed("check"):
            proxies = [
                gradient_proxies(here.model, here.examples, subset, statistics=here.statistics)
                for subset in self.reference
            ]
            loss = _mean_loss(proxies)
            error = self._model.error(flat(self._parameters(here)), loss)
        accounts.forward += sum(len(subset) for subset in self.reference)
        accounts.checks.append({"step": step, "loss": loss, "error": error})
        return error

    def state_dict(self) -> dict[str, Any]:
        """The model and the subsets it is checked on."""
        return {"model": self._model.state_dict(), "reference": self.reference}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._model.load_state_dict(state["model"])
        self.reference = state["reference"]

    def _parameters(self, here: TrustRegionSettings) -> list[nn.Parameter]:
        part = here.model if self._curvature_of == "all" else find_head(here.model, here.head)[1]
        trained = [parameter for parameter in part.parameters() if parameter.requires_grad]
        if not trained:
            raise ConfigError(
                f"crest models the loss over the parameters of {self._curvature_of} and none of those is trained; "
                "unfreeze some, or set curvature_of to all"
            )
        return trained


def _mean_loss(proxies: list[GradientProxies]) -> float:
    return float(torch.cat([one.losses for one in proxies]).mean())
