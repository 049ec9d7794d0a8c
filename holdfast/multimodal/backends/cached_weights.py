"""Weights that are trained once and stored: the first process trains them, others wait for its file.

A file is named after what decides its weights: the name of the recipe, its version and its options. Whoever changes
what a recipe computes raises its version, so weights of an older recipe are never taken for those of a newer one, and
rewording the code leaves the name, and the file, as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from holdfast.errors import ConfigError
from holdfast.training.state import load_state, save_state

#: Called after each epoch of a training with the epochs that are done, of how many, and the loss.
Progress = Callable[[int, int, float], None]


def cached_weights(
    module: nn.Module, folder: Path, name: str, make: Callable[[], None], *, version: int, **options: int | float | str
) -> None:
    """Load a module's weights from their file, or train and store them.

    Args:
        module: gets the weights in place.
        folder: where files are stored.
        name: of the recipe, begins the file's name.
        make: trains `module` in place.
        version: of the recipe.
        options: of the recipe, whatever else decides the weights.
    """
    file = folder / weights_file(name, version, options)
    with _alone(file.with_suffix(".lock")):
        if file.exists():
            module.load_state_dict(load_state(file)["weights"])
        else:
            make()
            save_state({"weights": dict(module.state_dict())}, file)


def weights_file(name: str, version: int, options: Mapping[str, int | float | str]) -> str:
    """The name of a file of weights: the same for the same recipe, on every machine and in every order of options.

    Example:
        >>> weights_file("shapes", 1, {"pairs": 6000, "epochs": 12})
        'shapes-v1-78ce8577aac3.safetensors'
    """
    written = json.dumps(options, sort_keys=True)
    return f"{name}-v{version}-{hashlib.sha256(written.encode()).hexdigest()[:12]}.safetensors"


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError as error:
        raise ConfigError(
            f"the folder {lock.parent} can't be written to ({error.strerror}); set HOLDFAST_DATA to one of yours"
        ) from error
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
