"""DP-SGD as an objective: gradients are clipped and blurred, so that no example can move the model far.

An objective can have any gradient q it wants at its value: ``loss.detach() + q . (theta - theta.detach())``. So the
training loop, its optimizer and its schedule stay as they are. `privacy_spent` asks opacus (extra ``privacy``) what a
training guarantees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.primitives.per_example import per_example_gradients
from holdfast.primitives.projections import project_to_ball
from holdfast.training.objective import Forward, Objective
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Policy
from holdfast.training.ranks import Ranks


class PrivateCrossEntropy(Objective):
    """Cross-entropy whose gradient is clipped to a norm and blurred by Gaussian noise.

    Args:
        max_norm: gradients are cut to this length.
        noise: standard deviation of each coordinate's noise, as a multiple of `max_norm` per example of a mini-batch
            where single gradients are clipped, and of `max_norm` where the mini-batch's is.
        clip: the gradient of the ``batch``, which goes with batch norm, or of each ``example``, which is private.
    """

    def __init__(self, max_norm: float, noise: float, clip: Literal["batch", "example"]) -> None:
        self.max_norm, self.noise, self.clip = max_norm, noise, clip

    def __call__(self, forward: Forward) -> Tensor:
        """The mean loss, with another gradient."""
        parameters = [part for part in forward.model.parameters() if part.requires_grad]
        if self.clip == "example":
            loss, flat = self._by_example(forward)
        else:
            mean = (forward.batch.weights * forward.losses).mean()
            parts = torch.autograd.grad(mean, parameters)
            loss, whole = mean.detach(), forward.ranks.mean(torch.cat([part.flatten() for part in parts]))
            flat = project_to_ball(whole[None], self.max_norm)[0]
            flat = flat + self.noise * self.max_norm * _normal(flat, forward.ranks)
        return loss + _with_gradient(flat, parameters)

    def _by_example(self, forward: Forward) -> tuple[Tensor, Tensor]:
        inputs, labels, ranks = forward.local.inputs, forward.local.labels, forward.ranks
        assert isinstance(inputs, Tensor)
        with torch.no_grad():
            loss = F.cross_entropy(forward.logits, forward.batch.labels)
        each = project_to_ball(per_example_gradients(forward.model, inputs, labels), self.max_norm)
        total = ranks.count * ranks.mean(each[: forward.counted].sum(0))
        blurred = total + self.noise * self.max_norm * _normal(total, ranks)
        return loss, blurred / len(forward.batch.labels)


@dataclass(kw_only=True)
class DpSgd(Policy):
    """Clips gradients and adds noise.

    Attributes:
        max_norm: gradients are cut to this length.
        noise: standard deviation of the noise as a multiple of it.
        clip: the gradient of the whole `batch` (for networks with batch norm) or of each `example` (differential
            privacy).
    """

    name: ClassVar[str] = "dp-sgd"

    max_norm: float = 1.0
    noise: float = 0.01
    clip: Literal["batch", "example"] = "batch"

    def __post_init__(self) -> None:
        if not self.max_norm > 0 or self.noise < 0:
            raise ConfigError(
                f"dp-sgd clips to {self.max_norm} with noise {self.noise}; give a norm above 0, and noise of 0 or more"
            )

    def objective(self) -> Objective:
        """The cross-entropy with a private gradient."""
        return PrivateCrossEntropy(self.max_norm, self.noise, self.clip)

    def update(self, context: Context) -> Plan:
        """No opinion on examples; single gradients need a network without batch norm."""
        mixing = (nn.modules.batchnorm._BatchNorm,)
        if self.clip == "example" and context.model and any(isinstance(m, mixing) for m in context.model.modules()):
            raise ConfigError(
                "dp-sgd clips the gradient of each example and the network has batch norm, which mixes them; use group "
                "norm, or clip the batch"
            )
        return Plan()


def privacy_spent(defence: DpSgd, *, examples: int, batch_size: int, epochs: int, delta: float | None = None) -> float:
    """The epsilon of differential privacy that a training with clipped single gradients has, by Renyi accounting.

    Mini-batches are taken for Poisson samples, as is usual; they are drawn without replacement.

    Args:
        defence: clips each `example`.
        examples: in the training set.
        batch_size: of the training.
        epochs: of the training.
        delta: probability of a failure; 1 / examples by default.
    """
    if defence.clip != "example" or not defence.noise > 0:
        raise ConfigError(
            f"dp-sgd clips the {defence.clip} with noise {defence.noise}, which guarantees nothing; clip the example "
            "with noise above 0"
        )
    try:
        from opacus.accountants import RDPAccountant  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError("privacy is accounted for by opacus; pip install 'holdfast[privacy]'") from error
    accountant = RDPAccountant()
    steps = epochs * -(-examples // batch_size)
    accountant.history = [(defence.noise, min(1.0, batch_size / examples), steps)]
    return float(accountant.get_epsilon(1 / examples if delta is None else delta))


def _normal(like: Tensor, ranks: Ranks) -> Tensor:
    """Standard normal numbers from the run's own generator, the same in all processes."""
    drawn: Tensor = ranks.broadcast(torch.randn(like.shape, dtype=like.dtype))
    return drawn.to(like.device)


def _with_gradient(flat: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Zero, with a given gradient."""
    parts = torch.split(flat, [part.numel() for part in parameters])
    terms = [
        (part.view_as(parameter) * (parameter - parameter.detach())).sum()
        for part, parameter in zip(parts, parameters, strict=True)
    ]
    return torch.stack(terms).sum()
