"""The weights that a model starts from: where they are, and how they get into the model.

They are read from files, and reading them never executes code. Only ``weights="hub"`` may fetch some, through
transformers' cache.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from holdfast.data.catalog import data_root
from holdfast.data.checksums import file_sum
from holdfast.data.own.words import some
from holdfast.errors import CheckpointError, ConfigError
from holdfast.models.heads import find_head
from holdfast.models.networks.densenet import current_name
from holdfast.models.table import HUB_MODELS
from holdfast.models.weight_files import read_weight_file

_log = logging.getLogger(__name__)

#: File names of torchvision's IMAGENET1K_V1 weights, which are published under `IMAGENET_URL`.
IMAGENET_WEIGHTS: Mapping[str, str] = MappingProxyType(
    {
        "resnet18": "resnet18-f37072fd.pth",
        "resnet18-pixels": "resnet18-f37072fd.pth",
        "resnet50": "resnet50-0676ba61.pth",
        "wide-resnet50": "wide_resnet50_2-95faca4d.pth",
        "densenet121": "densenet121-a639ec97.pth",
    }
)
IMAGENET_URL = "https://download.pytorch.org/models/"


def load_weights(model: nn.Module, path: Path | str, head: str | None = None) -> None:
    """Fill `model` from a state dict on disk; a head for another number of classes is left as it is, and logged.

    Args:
        model: any model whose parameters are named as in the file. The prefix ``module.`` that data parallel training
            leaves, and a surrounding ``state_dict`` entry, are removed.
        path: a ``.safetensors`` file, or one that `torch.save` wrote.
        head: the head's name where it can't be found, see `holdfast.models.find_head`.

    Raises:
        ConfigError: if the file isn't there.
        CheckpointError: if it can't be read, or names or shapes disagree; the model is then unchanged.
    """
    path = Path(path)
    given = _read(path)
    expected = model.state_dict()
    replaced = _foreign_head(model, given, expected, head)
    if replaced:
        classes = len(given[replaced[0]])
        _log.info("%s is for %d classes: %s keep their random start", path.name, classes, " and ".join(replaced))
    given |= {key: expected[key] for key in replaced}
    counters = {key for key in expected if key.endswith("num_batches_tracked")}  # old files lack them
    complaints = {
        "missing": sorted(expected.keys() - given.keys() - counters),
        "unexpected": sorted(given.keys() - expected.keys()),
        "of another shape": sorted(
            f"{key} {tuple(given[key].shape)} for {tuple(expected[key].shape)}"
            for key in expected.keys() & given.keys()
            if given[key].shape != expected[key].shape
        ),
    }
    reasons = [f"{some(keys)} {'is' if len(keys) == 1 else 'are'} {what}" for what, keys in complaints.items() if keys]
    if reasons:
        raise CheckpointError(
            f"{path} doesn't fit {type(model).__name__}: {'; '.join(reasons)}; give the weights of this network"
        )
    model.load_state_dict({key: given.get(key, expected[key]) for key in expected})


def check_public_weights(path: Path) -> None:
    """Compare a file of public weights with the sum in its name: ``resnet18-f37072fd.pth`` has the first 8 digits.

    Raises:
        CheckpointError: if they differ.
    """
    expected = path.stem.rpartition("-")[2]
    found = file_sum(path, "sha256")
    if not found.startswith(expected):
        raise CheckpointError(
            f"{path} isn't the file of its name: its SHA-256 sum begins with {found[: len(expected)]} instead of "
            f"{expected}; remove it and download {IMAGENET_URL}{path.name} again"
        )


def hub_source(name: str, weights: Path | str | None, root: Path | str | None) -> Path | str | None:
    """The name or folder to make a network of the hub from, or None where `weights` say nothing of that kind."""
    if weights == "hub":
        if name not in HUB_MODELS:
            raise ConfigError(f"{name!r} has no weights on the hub; those that do are {', '.join(HUB_MODELS)}")
        folder = data_root(root) / "weights" / name
        return folder if folder.is_dir() else name
    return Path(weights) if weights is not None and name in HUB_MODELS and Path(weights).is_dir() else None


def locate(name: str, weights: Path | str | None, root: Path | str | None) -> Path | None:
    """The file with the weights that a network is to start from, or None for a random start.

    Raises:
        ConfigError: if public weights are asked for that are not known, or not on this machine.
    """
    if weights is None:
        return None
    if weights != "imagenet":
        return Path(weights)
    if name not in IMAGENET_WEIGHTS:
        raise ConfigError(
            f"no public ImageNet weights are known for {name!r}; they are for {', '.join(IMAGENET_WEIGHTS)}"
        )
    folders = [data_root(root) / "weights", Path(torch.hub.get_dir()) / "checkpoints"]
    paths = [folder / IMAGENET_WEIGHTS[name] for folder in folders]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigError(
        f"the ImageNet weights of {name} aren't on this machine; download {IMAGENET_URL}{IMAGENET_WEIGHTS[name]} to "
        + " or ".join(str(path) for path in paths)
    )


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"there is no file of weights at {path}")
    stored = read_weight_file(path)
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]
    if not isinstance(stored, Mapping) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise CheckpointError(f"{path} doesn't hold a state dict (names and tensors); save model.state_dict()")
    return {current_name(str(key).removeprefix("module.")): value for key, value in stored.items()}


def _foreign_head(
    model: nn.Module, given: Mapping[str, Tensor], expected: Mapping[str, Tensor], head: str | None
) -> list[str]:
    """Keys in `given` that are the head's and differ from the model's in the number of classes only."""
    resized = [
        key
        for key in expected.keys() & given.keys()
        if given[key].ndim == expected[key].ndim > 0
        if given[key].shape[0] != expected[key].shape[0] and given[key].shape[1:] == expected[key].shape[1:]
    ]
    if not resized:
        return []
    name, _ = find_head(model, head)
    return [key for key in sorted(resized) if key in (f"{name}.weight".lstrip("."), f"{name}.bias".lstrip("."))]
