"""State on disk without pickles: nested dictionaries of tensors and plain values as one safetensors file.

Tensors become tensors of the file, everything else the JSON in its header, so loading can't execute code. A file is
written beside its final name, flushed to the disk and moved into place: a reader sees the old state or the new one,
never half of it, and a full disk leaves the old one alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from holdfast.errors import CheckpointError
from holdfast.files import write_atomically

_FORMAT = "holdfast-state-1"


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a nested state atomically.

    Args:
        state: dictionaries, lists and tuples of tensors, numbers, strings, booleans and None. Keys are strings or ints.
        path: the file; its folder must exist.

    Raises:
        CheckpointError: if the file can't be written; what was there before is untouched.
    """
    tensors: dict[str, Tensor] = {}
    tree = _flatten(state, "", tensors)
    payload = save(tensors, metadata={"format": _FORMAT, "tree": json.dumps(tree)})
    write_atomically(path, payload)


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote.

    Args:
        path: the file.

    Returns:
        The nested state, tensors on the CPU.

    Raises:
        CheckpointError: if the file is missing, truncated, or was not written by holdfast.
    """
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise CheckpointError(
                    f"{path} is a safetensors file but not a holdfast checkpoint (its format is "
                    f"{header.get('format', 'not stated')}); give the path of a run's checkpoints/last.safetensors"
                )
            tree = json.loads(header["tree"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no dict
        restored = _restore(tree, tensors)
        if not isinstance(restored, dict):
            raise ValueError(f"its state is of type {type(restored).__name__}")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} can't be read as a checkpoint: it is truncated, damaged or not a safetensors file ({error}); "
            "delete it to start again, or restore it from a copy"
        ) from error
    return restored


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
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
    return content
