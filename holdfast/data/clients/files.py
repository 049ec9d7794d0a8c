"""Tensors in a folder: a JSON header and one ``.npy`` file each, memory-mapped when read.

Opening takes the same time for ten clients and for a hundred thousand, and nothing in the files is executed. A folder
appears complete or not at all.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import DataError

_FORMAT = "holdfast-clients"
_VERSION = 1


def write_folder(folder: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a new folder in one step.

    Args:
        folder: what appears; its parent is made where it is missing.
        header: plain values that JSON can hold.
        tensors: by name; a name becomes a file's name.

    Raises:
        DataError: if the folder is there already, a dtype has no counterpart in NumPy, or the disk is full.
    """
    if folder.exists():
        raise DataError(f"{folder} is there already; choose another folder, or remove it first")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".clients-", dir=folder.parent) as work:
            inner = Path(work) / folder.name
            inner.mkdir()
            about = {}
            for name, tensor in tensors.items():
                array = tensor.detach().cpu().numpy()
                np.save(inner / f"{name}.npy", array, allow_pickle=False)
                about[name] = {"shape": list(array.shape), "dtype": array.dtype.str}
            content = {"format": _FORMAT, "version": _VERSION, **header, "tensors": about}
            (inner / "header.json").write_text(json.dumps(content), encoding="utf-8")
            inner.replace(folder)
    except TypeError as error:
        raise DataError(f"these clients can't be saved ({error}); convert the inputs to float32 or uint8") from error
    except OSError as error:
        raise DataError(
            f"{folder} can't be written: {error.strerror or error}; make room, or choose another"
        ) from error


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Open what `write_folder` wrote.

    The tensors are mapped privately: they are read from disk when touched, and writing into one changes the memory of
    this process only.

    Args:
        folder: the folder.

    Returns:
        The header and the tensors.

    Raises:
        DataError: if a file is missing, truncated or of another program.
    """
    header = _header(folder)
    return header, {name: _mapped(folder / f"{name}.npy", about) for name, about in header["tensors"].items()}


def _header(folder: Path) -> dict[str, Any]:
    path = folder / "header.json"
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder} has no header.json, so it isn't a folder of saved clients; give another") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); save the clients again") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise DataError(f"{path} wasn't written by Clients.save; give a folder of saved clients")
    if header.get("version") != _VERSION:
        raise DataError(f"{path} has version {header.get('version')!r} and we read {_VERSION}; save the clients again")
    names = header.get("tensors")
    if not isinstance(names, dict) or any("/" in name or "\\" in name or name.startswith(".") for name in names):
        raise DataError(f"{path} doesn't list its tensors by name; save the clients again")
    return header


def _mapped(path: Path, about: Any) -> Tensor:
    try:
        array = np.lib.format.open_memmap(path, mode="c")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; save the clients again") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is truncated or no plain array ({error}); save the clients again") from error
    if {"shape": list(array.shape), "dtype": array.dtype.str} != about:
        raise DataError(
            f"{path} holds {array.dtype} of shape {array.shape} and the header says {about}; save the clients again"
        )
    return torch.from_numpy(array)
