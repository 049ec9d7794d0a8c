"""safetensors files that carry the SHA-256 of all their bytes, so that a changed one is never taken for what it was.

safetensors finds a file that was cut, and nothing else: a flipped bit in a weight is another weight. The digest stands
in the file's own header, of a fixed length and zeros while it is computed, so it covers the header as well, one file
stays one file, and any program still reads it. Files without a seal (another program's, or made before there were
seals) are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from holdfast.files import add_to_digest, write_atomically

#: In the header: the digest, and that there is one. A flipped bit may hide one of the two names, not both.
_DIGEST, _SEALED = "sha256", "sealed"
_BLANK = "0" * 64
_LONGEST_HEADER = 100_000_000  # bytes; safetensors reads no longer ones


def write_sealed(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write tensors and what is known of them, as a whole or not at all; equal contents make equal files.

    Args:
        path: the file; its folder must exist.
        tensors: on the CPU, dense, none sharing memory with another.
        about: for the header; keep it short, since a header has at most 100 MB.

    Raises:
        CheckpointError: if the file can't be written.
    """
    payload = memoryview(save(dict(tensors), metadata={**about, _DIGEST: _BLANK, _SEALED: _DIGEST}))
    size = int.from_bytes(payload[:8], "little")
    header = _in_order(bytes(payload[8 : 8 + size]))
    digest = hashlib.sha256(header)
    digest.update(payload[8 + size :])
    write_atomically(path, _filled(header, digest.hexdigest()), payload[8 + size :])


def read_sealed(path: Path, *, whole: bool = True) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What stands in a file's header, and its tensors on the CPU, once its seal is found unbroken.

    Args:
        path: the file.
        whole: whether tensors are read too; without them the seal is not looked at, since it would read all of them.

    Raises:
        SafetensorError: if it is no safetensors file, or was cut.
        ValueError: if the seal is broken, or the header is no JSON of the right form.
        OSError: if the file can't be read.
    """
    with path.open("rb") as file:
        about = _check_seal(file) if whole else {}
    with safe_open(path, framework="pt") as opened:
        names = list(opened.keys()) if whole else []
        # With memory of its own: in the file a tensor begins anywhere, and sums over it would round otherwise than over
        # the one that was saved, which began where vectors do.
        tensors = {name: opened.get_tensor(name).clone() for name in names}
        return {**(opened.metadata() or {}), **about}, tensors


def is_sealed(about: Mapping[str, str]) -> bool:
    """Whether a header says that its file is sealed."""
    return _DIGEST in about or _SEALED in about


def _in_order(header: bytes) -> bytes:
    """A header in one order, since safetensors has it in any, with the length before it; tensors begin at 8 bytes."""
    text = json.dumps(json.loads(header), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _filled(header: bytes, digest: str) -> bytes:
    return header.replace(_entry(_BLANK), _entry(digest), 1)


def _entry(digest: str) -> bytes:
    return f'"{_DIGEST}":"{digest}"'.encode()


def _check_seal(file: IO[bytes]) -> dict[str, str]:
    """The header's own words of a file whose seal is unbroken; none of one that has no seal, or is too odd to say.

    Raises:
        ValueError: if the bytes are not those that were sealed.
    """
    length = file.read(8)
    size = int.from_bytes(length, "little")
    if size > _LONGEST_HEADER:
        return {}  # safetensors says what is wrong
    header = file.read(size)
    about = _about(header)
    if not is_sealed(about):
        return {}
    stated = str(about.get(_DIGEST))
    digest = hashlib.sha256(length + header.replace(_entry(stated), _entry(_BLANK), 1))
    add_to_digest(digest, file)
    if _SEALED not in about or digest.hexdigest() != stated:
        raise ValueError("its bytes are not those that were written: its SHA-256 is another than the one in its header")
    return about


def _about(header: bytes) -> dict[str, str]:
    try:
        parsed: Any = json.loads(header)
    except RecursionError as error:
        raise ValueError("its header is nested too deeply") from error
    except ValueError:
        return {}  # safetensors says what is wrong
    about = parsed.get("__metadata__") if isinstance(parsed, dict) else None
    return about if isinstance(about, dict) else {}
