"""The curator's file in the checkpoint folder of a framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.errors import CheckpointError
from holdfast.training.state import load_state, save_state

#: The file's name.
STATE_FILE = "curator.safetensors"


def write_curator(folder: Path, state: dict[str, Any]) -> None:
    """Put the curator's state beside the framework's files.

    Args:
        folder: the checkpoint.
        state: `Curator.state_dict` and what the adapter has to remember.
    """
    save_state(state, folder / STATE_FILE)


def read_curator(folder: Path) -> dict[str, Any]:
    """What `write_curator` wrote.

    Args:
        folder: the checkpoint.

    Raises:
        CheckpointError: if there is none, or it can't be read.
    """
    if not (folder / STATE_FILE).exists():
        raise CheckpointError(
            f"{folder} has no {STATE_FILE}, so it was saved without a curator; resume from a checkpoint that has one"
        )
    return load_state(folder / STATE_FILE)
