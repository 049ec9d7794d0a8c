"""Where an installed package keeps its files: weights, drawings and recordings come as packages too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from holdfast.errors import MissingDependencyError


def packaged_folder(module: str, missing: str) -> Path:
    """The folder of a package; none of its code is run.

    Args:
        module: what it is imported as.
        missing: the sentence for somebody who doesn't have it, with the command that installs it.

    Returns:
        The folder.

    Raises:
        MissingDependencyError: if it isn't installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(missing)
    return Path(spec.submodule_search_locations[0])
