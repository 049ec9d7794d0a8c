"""How models fare in the environment that clients train in and in the other one (Personalized FL, Section 6.1).

Accuracies are averaged over clients first, without weights; then the two environments are compared. The mean of
clients' own gaps is another number, never smaller, and given too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.federated.engine.client_runtime import ClientRuntime
from holdfast.federated.engine.network import Network
from holdfast.federated.metrics.scoring import ClientScores, PartName, gather
from holdfast.federated.personalization.adversarial import craft, transfer
from holdfast.primitives.pgd import Pgd

_BLOCK = 256
_SMALLEST = 1e-12


@dataclass(frozen=True)
class EnvironmentReport:
    """Accuracy and loss in and out of the environment, means over clients.

    Attributes:
        accuracy: in the client's own environment.
        elsewhere: in the other one.
        loss: in its own.
        loss_elsewhere: in the other.
        client_gap: mean over clients of the absolute difference of the two accuracies.
    """

    accuracy: float
    elsewhere: float
    loss: float
    loss_elsewhere: float
    client_gap: float

    @classmethod
    def of(cls, own: ClientScores, other: ClientScores) -> EnvironmentReport:
        """From the scores of the same clients in both."""
        gaps = (own.accuracy - other.accuracy).abs()
        means = (own.accuracy, other.accuracy, own.loss, other.loss, gaps)
        return cls(*(float(values.mean()) for values in means))

    @property
    def disparity(self) -> float:
        """Accuracy lost by leaving the environment; negative where it is gained."""
        return self.accuracy - self.elsewhere

    @property
    def worst(self) -> float:
        """The lower of the two accuracies."""
        return min(self.accuracy, self.elsewhere)

    @property
    def average(self) -> float:
        """The mean of the two, which is `worst` plus half of the absolute `disparity`."""
        return (self.accuracy + self.elsewhere) / 2

    @property
    def loss_disparity(self) -> float:
        """Loss added by leaving the environment."""
        return self.loss_elsewhere - self.loss


def environment_report(runtime: ClientRuntime, shared: Tensor, label: str | None = None) -> EnvironmentReport:
    """Of the shared model, or of the personal models of a method.

    Args:
        runtime: with clients that have examples elsewhere.
        shared: the shared model, shape (P,).
        label: of the method.

    Raises:
        DataError: if clients have no examples elsewhere.
    """
    return EnvironmentReport.of(_scored(runtime, "test", shared, label), _scored(runtime, "elsewhere", shared, label))


def mean_transfer(runtime: ClientRuntime, shared: Tensor, label: str, attack: Pgd) -> float:
    """Adversarial transferability to the personal models on test data, mean over clients that have fooling examples."""
    rates = []
    for client in range(len(runtime.clients)):
        one = torch.tensor([client])
        crafted = craft(runtime.network, shared, runtime.clients.test, one, attack)
        rates.append(transfer(runtime.network, runtime.personal(label, one, shared)[0], crafted, 0).rate)
    return float(torch.tensor(rates, dtype=torch.float64).nanmean())


def direct_success(runtime: ClientRuntime, shared: Tensor, label: str, attack: Pgd) -> float:
    """Share of test examples at which an attack on the personal models themselves succeeds, over all clients."""
    fooled = 0
    for client in range(len(runtime.clients)):
        one = torch.tensor([client])
        crafted = craft(runtime.network, runtime.personal(label, one, shared)[0], runtime.clients.test, one, attack)
        fooled += int((~runtime.network.correct(crafted.logits, crafted.labels)).sum())
    return fooled / max(int(runtime.clients.test.counts.sum()), 1)


def gradient_ratios(runtime: ClientRuntime, shared: Tensor, label: str) -> Tensor:
    """``||grad_x l(f_l)|| / ||grad_x l(f_g)||`` of every test example, float64; stable where all are near 1.

    Examples at which the shared model's gradient vanishes are left out.
    """
    ratios = []
    for client in range(len(runtime.clients)):
        one = torch.tensor([client])
        inputs, labels = (each.to(runtime.network.device) for each in runtime.clients.test.of(client))
        own = _input_norms(runtime.network, runtime.personal(label, one, shared)[0], inputs, labels)
        before = _input_norms(runtime.network, shared, inputs, labels)
        large = before >= _SMALLEST
        ratios.append(own[large] / before[large])
    return torch.cat(ratios)


def instability(ratios: Tensor) -> float:
    """Median of ``|ln r|``; 0 where no gradient has changed its length."""
    return float(ratios.clamp(min=_SMALLEST).log().abs().median())


def _scored(runtime: ClientRuntime, part: PartName, shared: Tensor, label: str | None) -> ClientScores:
    blocks = torch.split(torch.arange(len(runtime.clients)), 1)
    return gather([runtime.score(block, part, shared, label) for block in blocks])


def _input_norms(network: Network, model: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    norms = []
    for block, targets in zip(torch.split(inputs, _BLOCK), torch.split(labels, _BLOCK), strict=True):
        at = block.detach().requires_grad_()
        losses = network.losses(network.outputs(model[None], at[None])[0], targets)
        (gradient,) = torch.autograd.grad(losses.sum(), at)
        norms.append(torch.linalg.vector_norm(gradient.double().flatten(1), dim=1))
    return torch.cat(norms)
