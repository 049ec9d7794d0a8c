"""Files of weights, read without running anything that is in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from holdfast.errors import CheckpointError
from holdfast.sealed import read_sealed


def read_weight_file(path: Path) -> Any:
    """What is in a file of safetensors, or else of torch, of which only tensors and plain values are read.

    Raises:
        CheckpointError: if it is damaged, or asks torch for more than tensors and plain values.
    """
    kind = path.suffix or "torch"
    remedy = "give a whole .safetensors file or a state dict written by torch.save"
    try:
        if path.suffix == ".safetensors":
            return read_sealed(path)[1]
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's own text advises to load the file unsafely
        raise CheckpointError(
            f"the weights in {path} can't be read as a {kind} file: it is damaged, or holds more than tensors and "
            f"plain values; {remedy}"
        ) from error
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"the weights in {path} can't be read as a {kind} file ({reason}); {remedy}") from error
