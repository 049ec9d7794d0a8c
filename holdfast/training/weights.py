"""A trained model's weights as a file that any program reads: safetensors, under the model's own names.

``model.load_state_dict(load_file(path))`` takes them, strictly. Tied weights are written under each of their names,
since safetensors refuses tensors that share memory and a strict load asks for every name; loading ties them again. The
header holds what is known of the model, see `holdfast.training.model_card`, and the SHA-256 of the file: weights that
were changed after they were written are refused (`holdfast.sealed`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from holdfast.errors import CheckpointError
from holdfast.sealed import read_sealed, write_sealed

#: In the header: entries of the state dict that are no tensors (`nn.Module.get_extra_state`), as JSON.
_PLAIN = "plain"


def save_weights(state: Mapping[str, Any], path: Path, about: Mapping[str, str] | None = None) -> None:
    """Write a state dict, as a whole or not at all.

    Args:
        state: of a model.
        path: the file; its folder must exist.
        about: for the header.

    Raises:
        CheckpointError: if an entry can't be written (a sparse or quantised tensor, an object), or the file can't.
    """
    dense = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    plain = {name: value for name, value in state.items() if name not in dense}
    try:
        # A copy each: tied weights and views share memory, which safetensors refuses.
        tensors = {name: value.detach().cpu().contiguous().clone() for name, value in dense.items()}
        header = {"format": "pt", **(about or {}), **({_PLAIN: json.dumps(plain)} if plain else {})}
        write_sealed(path, tensors, header)
    except CheckpointError:
        raise
    except (TypeError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"the model's weights can't be written as safetensors ({error}); keep dense tensors and plain values in "
            "its state dict"
        ) from error


def load_weights(path: Path) -> dict[str, Any]:
    """The state dict that `save_weights` wrote, tensors on the CPU.

    Raises:
        CheckpointError: if there is no such file, it is damaged, or was changed after it was written.
    """
    header, tensors = _read(path, whole=True)
    try:
        return {**tensors, **json.loads(header.get(_PLAIN, "{}"))}
    except (ValueError, TypeError) as error:
        raise _damaged(path, error) from error


def weights_header(path: Path) -> dict[str, str]:
    """What stands in the header of a file of weights; no tensor is read.

    Raises:
        CheckpointError: if there is no such file, or it is damaged.
    """
    return _read(path, whole=False)[0]


def _read(path: Path, *, whole: bool) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.exists():
        raise CheckpointError(f"there are no weights at {path}; restore them from a copy of the run, or train again")
    try:
        return read_sealed(path, whole=whole)
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} can't be read as weights: it is truncated, damaged or not a safetensors file ({error}); restore it "
        "from a copy, or train again"
    )
