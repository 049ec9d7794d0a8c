"""The attacker's own networks: looked at in evaluation mode with the tape on, and trained the way a victim is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError
from holdfast.models.heads import features_and_logits
from holdfast.poisoning.attacks.crafting.last_epoch import fit_to_the_end
from holdfast.streams import derive_seed
from holdfast.training.model_outputs import device_of
from holdfast.training.settings import Training

#: One network, or several that an attack is to work on at once.
Surrogates = nn.Module | Sequence[nn.Module]

#: Makes an untrained network from a seed.
NewModel = Callable[[int], nn.Module]


def as_list(surrogates: Surrogates) -> list[nn.Module]:
    """The surrogates, one or several, as a list.

    Raises:
        ConfigError: if there is none.
    """
    models = [surrogates] if isinstance(surrogates, nn.Module) else list(surrogates)
    if not models:
        raise ConfigError("there is no surrogate; give at least one network that was trained on clean data")
    return models


def shared_device(models: Sequence[nn.Module]) -> torch.device:
    """Where the surrogates live, which must be one place.

    Raises:
        ConfigError: if they are on different devices.
    """
    devices = {device_of(model) for model in models}
    if len(devices) > 1:
        raise ConfigError(f"surrogates are on {', '.join(sorted(map(str, devices)))}; move them to one device")
    return devices.pop()


def features_at(model: nn.Module, inputs: Tensor, layers: Sequence[str] = (), head: str | None = None) -> list[Tensor]:
    """The input of the head, and the outputs of further layers, from one forward pass with the tape on.

    Args:
        model: any model.
        inputs: a batch.
        layers: names of submodules.
        head: the head's name where it can't be found.

    Returns:
        Features of shape (n, width), then one output per layer.

    Raises:
        ConfigError: if a layer has no such name, or isn't run exactly once.
    """
    recorded: dict[str, list[Tensor]] = {name: [] for name in layers}
    modules = dict(model.named_modules())

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, output: recorded[name].append(output)

    with ExitStack() as hooks:
        for name in layers:
            if name not in modules:
                raise ConfigError(f"{type(model).__name__} has no layer {name!r}; see model.named_modules()")
            hooks.callback(modules[name].register_forward_hook(keep(name)).remove)
        features, _ = features_and_logits(model, inputs, head)
    for name, outputs in recorded.items():
        if len(outputs) != 1:
            raise ConfigError(f"the layer {name!r} was run {len(outputs)} times in a forward pass, not once")
    return [features, *(recorded[name][0] for name in layers)]


def train_surrogate(model: nn.Module, train: Examples, settings: Training) -> nn.Module:
    """Train a network on what the attacker has, to the last epoch.

    Args:
        model: trained in place.
        train: the training set, clean or poisoned.
        settings: as the victim is thought to train.

    Returns:
        The model.
    """
    unused = train.subset(torch.arange(1))
    fit_to_the_end(model, Splits("surrogate", train, unused, unused), None, settings)
    return model


def staggered_surrogates(new_model: NewModel, train: Examples, settings: Training, count: int) -> list[nn.Module]:
    """Networks at different stages of training, as MetaPoison (Huang et al. 2020) looks at.

    Network i of n is trained for i / n of the epochs, from a start of its own: the first is untrained.

    Args:
        new_model: makes an untrained network from a seed.
        train: the training set.
        settings: of a whole training.
        count: how many networks; the full method uses 24.

    Returns:
        The networks.
    """
    models = list[nn.Module]()
    for number in range(count):
        seed = derive_seed(settings.seed, "staggered", number)
        model, epochs = new_model(seed), settings.epochs * number // count
        if epochs:
            train_surrogate(model, train, replace(settings, epochs=epochs, seed=seed))
        models.append(model)
    return models
