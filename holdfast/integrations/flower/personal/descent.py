"""Any optimizer of torch, and any schedule of its learning rate, for a model that is a row of numbers.

A method says in which direction a model should go: its gradient, pulled towards an anchor. Here the direction is handed
to the optimizer as the gradient, so Adam's moments are those of Ditto's objective. What an optimizer remembers belongs
to one model: a client that keeps several, one per lambda, has an optimizer for each, and one that tries several steps
keeps what belongs to the step that was taken.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from holdfast.errors import CheckpointError, ConfigError
from holdfast.integrations.flower.personal.lone_network import LoneNetwork


@dataclass(frozen=True)
class Recipe:
    """How a personal model's optimizer is made.

    Attributes:
        optimizer: from the model to its optimizer.
        scheduler: from the optimizer to its schedule, where there is one.
        every: what the schedule counts.
    """

    optimizer: Callable[[nn.Module], Optimizer]
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    every: Literal["round", "step"] = "round"


class Descent:
    """The optimizer of one row.

    Args:
        recipe: makes it.
        network: whose rows are moved.

    Raises:
        ConfigError: if the optimizer or the schedule can't be driven by single directions.
    """

    def __init__(self, recipe: Recipe, network: LoneNetwork) -> None:
        self._recipe, self._network = recipe, network
        model = copy.deepcopy(network.module)
        self.optimizer = check_optimizer(recipe.optimizer(model))
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._refuse_others()
        self.scheduler = None if recipe.scheduler is None else check_schedule(recipe.scheduler(self.optimizer))

    def step(self, row: Tensor, direction: Tensor) -> None:
        """Move a row of shape (P,) in place, with a direction of the same shape."""
        split = self._network.layout.split
        for parameter, part, gradient in zip(self._parameters, split(row), split(direction), strict=False):
            parameter.data, parameter.grad = part, None
            parameter.grad = gradient
        try:
            self.optimizer.step()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"the optimizer {type(self.optimizer).__name__} can't take a step ({reason})") from error
        if self._recipe.every == "step":
            self._schedule()

    def end_round(self) -> None:
        """Tell the schedule that a round is over."""
        if self._recipe.every == "round":
            self._schedule()

    def fork(self) -> Descent:
        """Another one that remembers the same."""
        other = Descent(self._recipe, self._network)
        other.load_state_dict(copy.deepcopy(self.state_dict()))
        return other

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        of_schedule = None if self.scheduler is None else self.scheduler.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "scheduler": of_schedule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember it.

        Raises:
            CheckpointError: if it is of another optimizer, or of another model.
        """
        # Moments are cast to the dtype of what they belong to, so parameters must have the row's by now.
        for parameter in self._parameters:
            parameter.data = parameter.data.to("cpu", self._network.dtype)
        try:
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"what is kept is of another optimizer than {type(self.optimizer).__name__} ({error}); continue with "
                "the optimizer that the run began with, or start another run"
            ) from error

    def _schedule(self) -> None:
        if self.scheduler is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a restored optimizer looks as if it never stepped
                self.scheduler.step()

    def _refuse_others(self) -> None:
        known = {id(each) for each in self._parameters}
        given = [each for group in self.optimizer.param_groups for each in group["params"]]
        if not any(id(each) in known for each in given):
            raise ConfigError(
                "the optimizer has none of the model's parameters; make it from the model that it is given, as in "
                "optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3)"
            )


def check_optimizer(optimizer: object) -> Optimizer:
    """The optimizer, if a direction is all that it needs.

    Raises:
        ConfigError: if it is none, or evaluates the loss itself (LBFGS).
    """
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(
            f"the optimizer is a {type(optimizer).__name__}; give a function of the model that returns one of torch's, "
            "as in optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3)"
        )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"the optimizer {type(optimizer).__name__} evaluates the loss several times within a step, and a personal "
            "model takes one step per mini-batch; use one that steps from a gradient, such as SGD, Adam or AdamW"
        )
    return optimizer


def check_schedule(scheduler: object) -> LRScheduler:
    """The schedule, if it needs to be told nothing.

    Raises:
        ConfigError: if it is none, or waits for a metric.
    """
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ConfigError(
            "the schedule ReduceLROnPlateau waits for a metric, and nobody tells it one here; use a schedule by time"
        )
    if not isinstance(scheduler, LRScheduler):
        raise ConfigError(f"the scheduler is a {type(scheduler).__name__}; give a function of the optimizer")
    return scheduler
