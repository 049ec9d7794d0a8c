"""Which training images an attack perturbs: images of the adversarial class, which keep their right label."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.modes import evaluation_mode
from holdfast.poisoning.attacks.crafting.pixels import pixels_at
from holdfast.poisoning.attacks.crafting.surrogates import Surrogates, as_list, shared_device
from holdfast.primitives.per_example import per_example_gradients
from holdfast.streams import torch_stream
from holdfast.training.model_outputs import ModelOutputs

_CHUNK = 32


def random_bases(train: Examples, adversarial_class: int, count: int, seed: int) -> Tensor:
    """Some images of the class, drawn without replacement.

    Args:
        train: the training set.
        adversarial_class: whose images.
        count: how many.
        seed: names the draw.

    Returns:
        Positions, ascending, int64 of shape (count,).
    """
    candidates = _candidates(train, adversarial_class, count)
    drawn = torch.randperm(len(candidates), generator=torch_stream(seed, "bases"))[:count]
    return candidates[drawn].sort().values


def steepest_bases(surrogates: Surrogates, train: Examples, adversarial_class: int, count: int) -> Tensor:
    """The images of the class with the largest gradient norms, as Sleeper Agent chooses them: those that move a model.

    Args:
        surrogates: norms are averaged over them.
        train: the training set.
        adversarial_class: whose images.
        count: how many.

    Returns:
        Positions, ascending, int64 of shape (count,).
    """
    candidates = _candidates(train, adversarial_class, count)
    models = as_list(surrogates)
    device, norms = shared_device(models), torch.zeros(len(candidates))
    with evaluation_mode(*models):
        for places in torch.split(torch.arange(len(candidates)), _CHUNK):
            positions = candidates[places]
            images, labels = pixels_at(train, positions).to(device), train.labels[positions].to(device)
            for model in models:
                norms[places] += per_example_gradients(model, images, labels).norm(dim=1).cpu() / len(models)
    return candidates[norms.topk(count).indices].sort().values


def similar_bases(surrogates: Surrogates, train: Examples, adversarial_class: int, count: int, seed: int) -> Tensor:
    """An image of the class drawn at random and its nearest neighbours in the class, by features.

    For an attacker who knows that EPIC drops what is alone: bases that are alike have gradients that are alike.

    Args:
        surrogates: the first one's features are used.
        train: the training set.
        adversarial_class: whose images.
        count: how many.
        seed: names the draw.

    Returns:
        Positions, ascending, int64 of shape (count,).
    """
    candidates = _candidates(train, adversarial_class, count)
    features = ModelOutputs(as_list(surrogates)[0], train, features=True).features(candidates)
    first = int(torch.randint(len(candidates), (), generator=torch_stream(seed, "bases", "similar")))
    distances = torch.linalg.vector_norm(features - features[first], dim=1)
    return candidates[distances.topk(count, largest=False).indices].sort().values


def check_bases(train: Examples, bases: Tensor, adversarial_class: int) -> Tensor:
    """The images at the bases, which must be of the adversarial class: a clean-label attack changes no label.

    Args:
        train: the training set.
        bases: positions.
        adversarial_class: the label that they must have.

    Returns:
        Pixels of shape (p, channels, height, width).
    """
    if len(bases) == 0:
        raise ConfigError("there are no bases; give the positions of some training images of the adversarial class")
    if len(torch.unique(bases)) != len(bases):
        raise ConfigError("a base is given twice; a training image can be poisoned once")
    others = bases[train.labels[bases] != adversarial_class]
    if len(others):
        raise ConfigError(
            f"{len(others)} of {len(bases)} bases are not of the adversarial class {adversarial_class}, such as the "
            f"one at position {int(others[0])} of class {int(train.labels[others[0]])}; clean-label poisons keep labels"
        )
    return pixels_at(train, bases)


def _candidates(train: Examples, adversarial_class: int, count: int) -> Tensor:
    candidates = (train.labels == adversarial_class).nonzero().flatten()
    if count < 1 or count > len(candidates):
        raise DataError(f"{count} bases are wanted and class {adversarial_class} has {len(candidates)} examples")
    return candidates
