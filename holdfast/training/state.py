"""State on disk without pickles: nested dictionaries of tensors and plain values as one safetensors file.

Tensors become tensors of the file, and so does the JSON of everything else, since a header has a limit and is parsed as
a whole. Loading can't execute code. The file is sealed (`holdfast.sealed`): one that was changed is refused. It is
written beside its final name, flushed to the disk and moved into place: a reader sees the old state or the new one,
never half of it, and a full disk leaves the old one alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from holdfast.errors import CheckpointError
from holdfast.sealed import is_sealed, read_sealed, write_sealed

#: What a header says: today's files, and those whose JSON was in the header and which had no seal.
_FORMAT, _FORMAT_BEFORE = "holdfast-state-2", "holdfast-state-1"
#: The tensor with the JSON of everything that is no tensor. No state has an entry without a name.
_TREE = ""


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a nested state atomically.

    Args:
        state: dictionaries, lists and tuples of tensors, numbers, strings, booleans and None. Keys are strings or ints.
        path: the file; its folder must exist.

    Raises:
        CheckpointError: if the file can't be written; what was there before is untouched.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_flatten(state, "", tensors)).encode()
    tensors[_TREE] = torch.frombuffer(bytearray(tree), dtype=torch.uint8)
    write_sealed(path, tensors, {"format": _FORMAT})


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote.

    Args:
        path: the file.

    Returns:
        The nested state, tensors on the CPU.

    Raises:
        CheckpointError: if the file is missing, truncated, changed, or was not written by holdfast.
    """
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        about, tensors = read_sealed(path)
        restored = _restore(_tree(path, about, tensors), tensors)
        if not isinstance(restored, dict):
            raise ValueError(f"its state is of type {type(restored).__name__}")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} can't be read as a checkpoint: it is truncated, damaged or not a safetensors file ({error}); "
            "delete it to start again, or restore it from a copy"
        ) from error
    return restored


def _tree(path: Path, about: dict[str, str], tensors: dict[str, Tensor]) -> Any:
    """What the state is like, with names where its tensors belong."""
    stated = about.get("format")
    if stated == _FORMAT_BEFORE:
        return json.loads(about["tree"])
    if stated != _FORMAT:
        raise CheckpointError(
            f"{path} is a safetensors file but not a holdfast checkpoint (its format is "
            f"{stated or 'not stated'}); give the path of a run's checkpoints/last.safetensors"
        )
    if not is_sealed(about):
        raise ValueError("its seal is missing")
    return json.loads(tensors.pop(_TREE).numpy().tobytes())


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = name if name and name not in tensors else f"{name}#{len(tensors)}"  # keys may have slashes themselves
        # A copy of its own: safetensors refuses tensors that share memory, as tied weights and views do.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        # Pairs and not a JSON object, whose keys are all strings: optimizers number their parameters.
        items = [[key, _flatten(item, f"{name}/{key}" if name else str(key), tensors)] for key, item in value.items()]
        return {"dict": items}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_flatten(item, f"{name}/{place}", tensors) for place, item in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise CheckpointError(f"state {name} is of type {type(value).__name__}; use tensors and plain values")


def _restore(tree: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _restore(item, tensors) for key, item in content}
    if kind in ("list", "tuple"):
        items = [_restore(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    if kind != "value" or isinstance(content, (dict, list)):
        raise ValueError(f"an entry of its state is of kind {kind!r:.60}")
    return content
