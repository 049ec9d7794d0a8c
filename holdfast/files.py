"""Files written as a whole or not at all, configuration files whose content never runs, and plain values for both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from holdfast.errors import CheckpointError, ConfigError


def write_atomically(path: Path, payload: bytes) -> None:
    """Put `payload` at `path` as a whole or not at all.

    Args:
        path: the file; its folder must exist.
        payload: the content.

    Raises:
        CheckpointError: if the disk is full or the folder can't be written to; what was there before is untouched.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        kept = "; what was there before is unharmed" if path.exists() else ""
        raise CheckpointError(f"{path} can't be written ({error.strerror or error}){kept}") from error


def read_yaml(path: Path) -> Any:
    """The plain values in a YAML file.

    Raises:
        ConfigError: if the file can't be read, or isn't YAML of plain values.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration file {path} can't be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the configuration file {path} is not valid YAML of plain values: {reason}") from error


def plain_values(value: Any) -> Any:
    """Plain JSON and YAML values out of what dataclasses hold: paths as text, tuples and tensors as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value
