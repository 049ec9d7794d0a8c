"""Weights that are made once and kept: the first process makes them, others wait for its file.

A file is named after everything that decides its weights, the source code of the recipe included, so a change of the
recipe never meets the weights of an older one.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

from holdfast.errors import ConfigError
from holdfast.training.state import load_state, save_state

#: Called after each epoch of a training with the epochs that are done, of how many, and the loss.
Progress = Callable[[int, int, float], None]


def cached_weights(
    module: nn.Module,
    folder: Path,
    name: str,
    sources: Sequence[ModuleType],
    make: Callable[[], None],
    **recipe: object,
) -> None:
    """Load a module's weights from their file, or make and keep them.

    Args:
        module: gets the weights in place.
        folder: where files are kept.
        name: begins the file's name.
        sources: modules whose source decides the weights.
        make: trains `module` in place.
        recipe: what else decides the weights.
    """
    said = [repr(sorted(recipe.items())), *(inspect.getsource(source) for source in sources)]
    file = folder / f"{name}-{hashlib.sha256(chr(10).join(said).encode()).hexdigest()[:12]}.safetensors"
    with _alone(file.with_suffix(".lock")):
        if file.exists():
            module.load_state_dict(load_state(file)["weights"])
        else:
            make()
            save_state({"weights": dict(module.state_dict())}, file)


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
