"""What attacks minimise, as pure functions of gradients and features.

Witches' Brew (Geiping et al. 2021) aligns the gradient of the poisons with the one that would fit the target to the
adversarial class. Bullseye Polytope (Aghakhani et al. 2021) puts the mean of the poisons' features on the target's,
Convex Polytope (Zhu et al. 2019) some convex combination of them, Poison Frogs (Shafahi et al. 2018) each one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.heads import logits_of


def parameter_gradient(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """The gradient of the mean cross-entropy with respect to all parameters that train, as one vector.

    A model whose extractor is frozen gives the head's gradient, which is the attack on transfer learning.

    Args:
        model: in the mode in which it is to be looked at.
        inputs: a batch.
        labels: int64 of shape (n,).
        create_graph: keep the tape, to differentiate the gradient with respect to the inputs.

    Returns:
        The gradient, shape (trained parameters,), and the logits, shape (n, classes).
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ConfigError("no parameter of the surrogate trains, so there is no gradient to match; unfreeze the head")
    with torch.enable_grad():
        logits = logits_of(model(inputs))
        loss = F.cross_entropy(logits, labels)
        gradients = torch.autograd.grad(loss, trained, create_graph=create_graph)
    return torch.cat([gradient.flatten() for gradient in gradients]), logits


def misalignment(gradient: Tensor, wanted: Tensor) -> Tensor:
    """1 - cos of the angle between two gradients: one cosine over all parameters, not a mean over layers."""
    return 1 - F.cosine_similarity(gradient, wanted, dim=0, eps=1e-12)


def scatter(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of 1 - cos over all pairs of p - y: how far the poisons' gradients point apart.

    An attacker who knows of EPIC wants this small, as EPIC drops what is alone. 0 for fewer than two poisons.

    Args:
        logits: shape (p, classes).
        labels: int64 of shape (p,).

    Returns:
        A scalar from 0 to 2.
    """
    p = len(logits)
    if p < 2:
        return logits.new_zeros(())
    residuals = logits.softmax(1) - F.one_hot(labels, logits.shape[1])
    units = F.normalize(residuals, dim=1)
    return 1 - (units.sum(0).square().sum() - units.square().sum()) / (p * (p - 1))


def bullseye(features: Tensor, target: Tensor) -> Tensor:
    """Distance of the mean of the poisons' features from the target's, in units of the target's norm.

    Args:
        features: of the poisons, shape (p, ...).
        target: of the target, shape (1, ...).

    Returns:
        A scalar.
    """
    centre, goal = features.flatten(1).mean(0), target.flatten()
    distance: Tensor = torch.linalg.vector_norm(centre - goal) / torch.linalg.vector_norm(goal)
    return distance


def convex_polytope(features: Tensor, target: Tensor, coefficients: Tensor) -> Tensor:
    """Half the squared distance of a combination of features from the target's, in units of the latter's square.

    Args:
        features: of the poisons, shape (p, d).
        target: shape (d,).
        coefficients: of the combination, shape (p,).

    Returns:
        A scalar.
    """
    return 0.5 * (target - coefficients @ features).square().sum() / target.square().sum()


def feature_collision(features: Tensor, target: Tensor) -> Tensor:
    """Squared distance of each poison's features from the target's, shape (p,)."""
    return (features - target).flatten(1).square().sum(1)
