"""LfF (Learning from Failure): train a biased network beside the model, and learn most from what it fails on.

Nam et al. 2020 (https://arxiv.org/abs/2007.02561), Algorithm 1; a baseline of SPARE and PDE. The biased network
minimises a generalised cross-entropy, whose gradient fades where the network is unsure, so that it settles on what is
easy. The model then weighs each example by how hard it is for the biased network relative to itself. It needs no group
labels and no second stage, but every step trains two networks.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.training.model_outputs import device_of
from holdfast.training.objective import Forward, NewOptimizer, Objective
from holdfast.training.policy import Uniform

_EPSILON = 1e-8


def bias_amplifying_losses(logits: Tensor, labels: Tensor, q: float) -> Tensor:
    """Losses whose gradient is that of the generalised cross-entropy (1 - p^q) / q, times q.

    Args:
        logits: shape (b, classes).
        labels: int64 of shape (b,).
        q: how much unsure examples are played down; 0 would be a loss without gradient, 1 is (1 - p).

    Returns:
        Cross-entropy x q x p^q of shape (b,), with p, the probability of the label, held fixed in p^q.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses * q * (-q * losses.detach()).exp()


def relative_difficulty(biased: Tensor, debiased: Tensor) -> Tensor:
    """How hard an example is for the biased network compared with the model, from 0 to 1.

    Args:
        biased: relative loss of each example under the biased network, shape (b,).
        debiased: the same under the model.

    Returns:
        The weights of the model's losses, shape (b,).

    Example:
        >>> relative_difficulty(torch.tensor([0.75, 0.0]), torch.tensor([0.25, 0.5])).tolist()
        [0.75, 0.0]
    """
    return biased / (biased + debiased + _EPSILON)


class LossAverage:
    """A moving average of each training example's loss, and how it compares with the largest of its class.

    Dividing by the class's maximum keeps a class that is hard as a whole from drawing all the weight.

    Args:
        labels: class of each training example, int64 of shape (n,), where the averages are to be kept.
        alpha: weight of the past; an example's first loss counts in full.
    """

    def __init__(self, labels: Tensor, alpha: float) -> None:
        self.alpha = alpha
        self._labels = labels
        self._n_classes = int(labels.max()) + 1
        self._values = torch.zeros(len(labels), device=labels.device)
        self._seen = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)

    def update(self, positions: Tensor, losses: Tensor) -> Tensor:
        """Take in the losses of a batch.

        Args:
            positions: of the examples in the training set, int64 of shape (b,).
            losses: shape (b,), without gradient.

        Returns:
            The averages at `positions`, each over the largest among all seen examples of its class: shape (b,), from 0
            to 1.
        """
        losses = losses.to(self._values.dtype)
        moved = self.alpha * self._values[positions] + (1 - self.alpha) * losses
        self._values[positions] = torch.where(self._seen[positions], moved, losses)
        self._seen[positions] = True
        largest = self._values.new_zeros(self._n_classes).scatter_reduce(0, self._labels, self._values, "amax")
        smallest_divisor = torch.finfo(largest.dtype).tiny
        return self._values[positions] / largest[self._labels[positions]].clamp(min=smallest_divisor)

    def state_dict(self) -> dict[str, Any]:
        """The averages, and which examples have one."""
        return {"values": self._values, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the averages."""
        self._values.copy_(state["values"])
        self._seen.copy_(state["seen"])


def sibling(model: nn.Module) -> nn.Module:
    """A second network like `model`.

    Returns:
        A copy, with random weights of its own where the model can draw them (`reset_parameters`); otherwise it starts
        from the same weights, as it must where these are pretrained.
    """
    twin = copy.deepcopy(model)
    reset = getattr(twin, "reset_parameters", None)
    if callable(reset):
        reset()
    return twin


@dataclass
class _Biased:
    """What trains beside the model.

    Attributes:
        network: the biased network.
        optimizer: its own.
        average: of the losses under the biased network.
        model_average: of the losses under the model.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    average: LossAverage
    model_average: LossAverage


@dataclass(eq=False)
class LffLoss(Objective):
    """Cross-entropy weighed by what a biased network fails on; the biased network trains along, one step per call.

    Attributes:
        q: exponent of the biased network's generalised cross-entropy, above 0 and at most 1.
        alpha: weight of the past in the moving averages of the losses, from 0 to below 1.
    """

    q: float = 0.7
    alpha: float = 0.7
    _biased: _Biased | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise ConfigError(f"q of lff is {self.q}; give a number above 0 and at most 1")
        if not 0 <= self.alpha < 1:
            raise ConfigError(f"alpha of lff is {self.alpha}; give a number from 0 to below 1")

    def prepare(
        self, examples: Examples, model: nn.Module | None = None, new_optimizer: NewOptimizer | None = None
    ) -> None:
        """Set the biased network up beside the model, with an optimizer like the run's."""
        if model is None or new_optimizer is None:
            raise ConfigError("lff trains a second network; call objective.prepare(train, model, new_optimizer)")
        network = sibling(model).train()
        labels = examples.labels.to(device_of(model))
        self._biased = _Biased(
            network, new_optimizer(network), LossAverage(labels, self.alpha), LossAverage(labels, self.alpha)
        )

    def __call__(self, forward: Forward) -> Tensor:
        """Weigh the losses by the averages that include them, then let the biased network take its step."""
        batch, biased = forward.batch, self._prepared()
        positions = batch.positions.to(forward.losses.device)
        logits = forward.outputs_of(biased.network)
        losses = F.cross_entropy(logits.detach(), batch.labels, reduction="none")
        weights = relative_difficulty(
            biased.average.update(positions, losses), biased.model_average.update(positions, forward.losses.detach())
        )
        biased.optimizer.zero_grad(set_to_none=True)
        loss = (batch.weights * bias_amplifying_losses(logits, batch.labels, self.q)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        forward.ranks.average_gradients(list(biased.network.parameters()))
        biased.optimizer.step()
        return (batch.weights * weights * forward.losses).mean()

    def state_dict(self) -> dict[str, Any]:
        """The biased network, its optimizer, and both averages."""
        biased = self._prepared()
        return {
            "network": dict(biased.network.state_dict()),
            "optimizer": biased.optimizer.state_dict(),
            "average": biased.average.state_dict(),
            "model_average": biased.model_average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        biased = self._prepared()
        biased.network.load_state_dict(state["network"])
        biased.optimizer.load_state_dict(state["optimizer"])
        biased.average.load_state_dict(state["average"])
        biased.model_average.load_state_dict(state["model_average"])

    def _prepared(self) -> _Biased:
        if self._biased is None:
            raise ConfigError("lff has no second network yet; call objective.prepare(train, model, new_optimizer)")
        return self._biased


@dataclass(frozen=True)
class Lff(Uniform):
    """Train a biased network alongside and learn most from what it fails on; needs no group labels.

    Attributes:
        q: exponent of the biased network's generalised cross-entropy, above 0 and at most 1.
        alpha: weight of the past in the moving averages of the losses, from 0 to below 1.
    """

    name: ClassVar[str] = "lff"
    promises_worst_group = True
    guesses_groups = True

    q: float = 0.7
    alpha: float = 0.7

    def __post_init__(self) -> None:
        self.objective()

    def objective(self) -> LffLoss:
        """The weighed cross-entropy, with the network that gives the weights."""
        return LffLoss(self.q, self.alpha)
