"""Files written as a whole or not at all, configuration files whose content never runs, and plain values for both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import yaml

from holdfast.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_MOST_VALUES, _DEEPEST = 100_000, 50  # of a configuration file
_HASHED_AT_ONCE = 1 << 22  # bytes


def write_atomically(path: Path, *pieces: bytes | memoryview) -> None:
    """Put what the pieces are together at `path`, as a whole or not at all.

    When it returns, the file is on the disk and so is its name: a machine that loses power now still has it.

    Args:
        path: the file; its folder must exist.
        pieces: the content; several where joining them would take the memory twice.

    Raises:
        CheckpointError: if the disk is full or the folder can't be written to; what was there before is untouched.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        kept = "; what was there before is unharmed" if os.path.lexists(path) else ""
        raise CheckpointError(f"{path} can't be written ({error.strerror or error}){kept}") from error


def add_to_digest(digest: Hash, file: IO[bytes], most: int | None = None) -> int:
    """Hash what follows in a file, a piece at a time, so that no file is held in memory.

    Args:
        digest: of hashlib; updated.
        file: open for reading.
        most: bytes to read at most; to the end by default.

    Returns:
        How many bytes were read.
    """
    count = 0
    while block := file.read(_HASHED_AT_ONCE if most is None else min(most - count, _HASHED_AT_ONCE)):
        digest.update(block)
        count += len(block)
    return count


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do that to a folder."""
    with suppress(PermissionError, IsADirectoryError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems have no such thing
                os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what processes that are gone left half written in a folder and in those directly below it.

    Args:
        folder: which only this process writes to, since it holds its lock.

    Returns:
        What was removed.
    """
    left = [part for part in (*folder.glob(".*.part"), *folder.glob("*/.*.part")) if not _is_being_written(part)]
    for part in left:
        with suppress(OSError):
            shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()
    return left


def _is_being_written(part: Path) -> bool:
    """Whether the process that a half-written file names is alive here: a report may be written beside a training."""
    name = part.name.split(".")[-2]
    if not name.isdecimal() or not 0 < int(name) < 2**31 or int(name) == os.getpid():
        return False
    try:
        os.kill(int(name), 0)
    except PermissionError:
        return True  # somebody else's
    except OSError:
        return False
    return True


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """A path to write a file or a folder to, which appears at `out` when the block ends well, or not at all.

    Args:
        out: where it is to be; its folder is made. A file that is there is replaced, and so is an empty folder.

    Raises:
        ConfigError: if its folder can't be made or written to.
    """
    final = out.resolve()
    beside = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{out} can't be made ({error.strerror}); choose another with --out") from error
    try:
        yield beside / final.name
        try:
            for file in beside.rglob("*"):
                if file.is_file():
                    with file.open("rb") as written:
                        os.fsync(written.fileno())
            (beside / final.name).replace(final)
        except OSError as error:
            raise CheckpointError(f"{out} can't be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_yaml(path: Path) -> Any:
    """The plain values in a YAML file.

    Raises:
        ConfigError: if the file can't be read, or isn't YAML of plain values.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node, {}, 0)
        return loader.construct_document(node)
    except OSError as error:
        raise ConfigError(f"the configuration file {path} can't be read ({error.strerror})") from error
    except RecursionError as error:
        raise ConfigError(f"the configuration file {path} is nested too deeply; give `name: value` lines") from error
    # YAML's own conversions raise nearly anything: an AttributeError for a time, a ValueError for 5,000 digits.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"the configuration file {path} is not valid YAML of plain values: {reason}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The options in a YAML file: plain values by name.

    Raises:
        ConfigError: if the file can't be read, or holds something else.
    """
    loaded = read_yaml(path)
    if not isinstance(loaded, dict):
        raise ConfigError(f"the configuration file {path} must hold options as `name: value` lines")
    sections = [loaded, *(value for value in loaded.values() if isinstance(value, dict))]
    for key in (key for section in sections for key in section):
        if not isinstance(key, str) or not key:
            raise ConfigError(
                f"the configuration file {path} has the key {str(key)!r:.60}, which isn't the name of an option"
            )
    return loaded


def _check_size(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """How many values a node has once its aliases are written out, which a file of ten lines can make billions of.

    Raises:
        ValueError: if they are too many, too deep, or never end.
    """
    if sizes.get(id(node)) == 0:
        raise ValueError("an alias stands for what it is in, without end")
    if depth > _DEEPEST:
        raise ValueError(f"its values are nested more than {_DEEPEST} deep")
    if id(node) not in sizes:
        sizes[id(node)] = 0  # being counted
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        children = [child for item in inner for child in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_check_size(child, sizes, depth + 1) for child in children)
    if sizes[id(node)] > _MOST_VALUES:
        raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")
    return sizes[id(node)]


def plain_values(value: Any) -> Any:
    """Plain JSON and YAML values out of what dataclasses hold: paths as text, tuples and tensors as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value
