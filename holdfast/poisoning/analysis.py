"""Which poisons work, when they were dropped, how alone they were, and what dropping did to the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError
from holdfast.poisoning.epic import Drop
from holdfast.poisoning.isolation import Medoids
from holdfast.training.model_outputs import evaluating, to_device

_BLOCK = 2**22  # distances held at once


@dataclass(frozen=True, eq=False)
class Effective:
    """The poisons that make an attack work.

    Attributes:
        ids: the smallest prefix of the ranking that suffices, int64.
        suffices: whether they alone make the attack work.
        needed: whether the attack fails without them.
    """

    ids: Tensor
    suffices: bool
    needed: bool


def effective_poisons(ranked: Tensor, works: Callable[[Tensor], bool]) -> Effective:
    """Find the smallest prefix of a ranking of poisons that makes an attack work, by doubling and bisection.

    Args:
        ranked: ids of all poisons, the likeliest to work first; by the distance of their gradients from the target's
            on a clean model, as in Figure 4.1 of the dissertation.
        works: trains with the given poisons only and says whether the attack works; in two of three seeds, say.

    Returns:
        The prefix; all poisons where not even they suffice.
    """
    if not works(ranked):
        return Effective(ranked, suffices=False, needed=False)
    low, high = 0, 1
    while high < len(ranked) and not works(ranked[:high]):
        low, high = high, min(2 * high, len(ranked))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(ranked[:middle]) else (middle, high)
    return Effective(ranked[:high], suffices=True, needed=not works(ranked[high:]))


def rank_by_target(residuals: Tensor, target: Tensor, ids: Tensor) -> Tensor:
    """Ids of poisons by the distance of their p - y from that of the target under the adversarial label."""
    return ids[(residuals - target).norm(dim=1).argsort(stable=True)]


def dropped_over_time(drops: Sequence[Drop], kinds: dict[str, Tensor]) -> dict[str, list[float]]:
    """The share of each kind of example that was dropped so far, after every round (Figure 4.3b).

    Args:
        drops: EPIC's rounds.
        kinds: ids by kind, such as effective poisons, other poisons and clean examples.
    """
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    gone = torch.empty(0, dtype=torch.int64)
    for drop in drops:
        gone = torch.cat([gone, drop.ids])
        for kind, ids in kinds.items():
            shares[kind].append(float(torch.isin(ids, gone).float().mean()) if len(ids) else 0.0)
    return shares


def cluster_sizes(gradients: Tensor, labels: Tensor, medoids: Medoids) -> Tensor:
    """How many examples share each example's nearest medoid of its class (Figures 4.4 and 4.5).

    Args:
        gradients: of all examples, shape (n, d).
        labels: int64 of shape (n,).
        medoids: of all classes.

    Returns:
        int64 of shape (n,); 0 in classes without medoids.
    """
    sizes = torch.zeros(len(labels), dtype=torch.int64)
    for label in torch.unique(medoids.classes).tolist():
        members, own = (labels == label).nonzero().flatten(), medoids.positions[medoids.classes == label]
        nearest = torch.cat(
            [
                torch.cdist(gradients[part], gradients[own]).argmin(1)
                for part in torch.split(members, max(1, _BLOCK // len(own)))
            ]
        )
        sizes[members] = torch.bincount(nearest, minlength=len(own))[nearest]
    return sizes


@dataclass(frozen=True)
class Isolation:
    """How alone some gradients are (Figure 4.3a).

    Attributes:
        mutual: mean cosine of pairs of them.
        to_target: mean cosine with the target's gradient.
    """

    mutual: float
    to_target: float


def isolation(gradients: Tensor, target: Tensor) -> Isolation:
    """Mean cosines among gradients, and with the target's.

    Args:
        gradients: shape (p, d), at least two.
        target: shape (d,).
    """
    if len(gradients) < 2:
        raise ConfigError(f"{len(gradients)} gradients have no pairs; give at least two")
    units = F.normalize(gradients, dim=1)
    among = units @ units.T
    pairs = len(units) * (len(units) - 1)
    return Isolation(float((among.sum() - among.trace()) / pairs), float((units @ F.normalize(target, dim=0)).mean()))


def gradient_error(model: nn.Module, examples: Examples, kept: Tensor, *, batch_size: int = 256) -> float:
    """|mean gradient of the kept - mean gradient of all|, over all parameters that train (Figure 4.3c).

    Args:
        model: looked at in evaluation mode.
        examples: the training set.
        kept: positions, int64.
        batch_size: examples per pass.
    """
    whole = _mean_gradient(model, examples, torch.arange(len(examples)), batch_size)
    return float((_mean_gradient(model, examples, kept, batch_size) - whole).norm())


def _mean_gradient(model: nn.Module, examples: Examples, positions: Tensor, batch_size: int) -> Tensor:
    trained = [part for part in model.parameters() if part.requires_grad]
    device = trained[0].device
    total = torch.zeros(sum(part.numel() for part in trained), device=device)
    with evaluating(model), torch.enable_grad():
        for chunk in torch.split(positions, batch_size):
            inputs, labels = examples.gather(chunk)
            moved = to_device(inputs, device)
            assert isinstance(moved, Tensor)
            loss = F.cross_entropy(model(moved), labels.to(device), reduction="sum")
            total += torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained)])
    return total / len(positions)
