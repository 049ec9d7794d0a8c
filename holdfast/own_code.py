"""Objects of the user's own code, named as ``package.module:Thing``: found, and mistakes in them told as sentences.

The module is looked for on ``sys.path`` and in the current directory, never beside a run or a file that somebody sent.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import ConfigError, HoldfastError, nearest

_HERE = Path(__file__).parent
_MOST_OFFERED = 12


@dataclass(frozen=True)
class Wanted:
    """What is looked for, for messages.

    Attributes:
        name: module and object, with a colon between them.
        what: what it is to be: ``model``.
        option: where it was named: ``--model``.
        example: an object's name to propose.
        forms: what may stand there.
    """

    name: str
    what: str
    option: str
    example: str
    forms: str


def named_object(wanted: Wanted, may_be: Callable[[Any, str], bool]) -> Any:
    """What ``package.module:Thing`` stands for.

    Args:
        wanted: its name, and what it is to be.
        may_be: whether an object of a module of this name could be meant, for a did-you-mean.

    Raises:
        ConfigError: if it can't be imported or is not there.
    """
    module_name, _, attribute = wanted.name.partition(":")
    _refuse_other_forms(wanted, module_name, attribute)
    module = _imported(module_name, wanted)
    if not hasattr(module, attribute):
        offered = [key for key, value in vars(module).items() if may_be(value, module_name)]
        raise ConfigError(f"{_place(module)} has no {attribute!r}{_offer(attribute, offered)}")
    return getattr(module, attribute)


@contextmanager
def told_as_sentence(what: str) -> Iterator[None]:
    """Turn what goes wrong in the user's code into one sentence with the line; the traceback is its cause.

    Args:
        what: the beginning of the sentence.

    Raises:
        ConfigError: instead of any other error.
    """
    try:
        yield
    except HoldfastError:
        raise
    except SystemExit as error:
        raise ConfigError(f"{what}: it ends the program{_line_of(error)}; guard that by if __name__ ...") from error
    except Exception as error:
        reason = " ".join(str(error).partition("Exception raised from")[0].split())[:300]  # torch adds C++ frames
        kind = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise ConfigError(f"{what}: {kind}{_line_of(error)}") from error


def is_installed(function: Any) -> bool:
    """Whether something comes with Python or an installed package; what can't be told counts as such."""
    function = getattr(function, "func", function)  # of a functools.partial
    try:
        file = Path(inspect.getfile(inspect.unwrap(function))).resolve()
    except TypeError:
        own = type(function) if inspect.isclass(type(function)) else None
        module = sys.modules.get(getattr(own, "__module__", ""), None)
        file = Path(getattr(module, "__file__", None) or sysconfig.get_path("stdlib")).resolve()
    return _below_installed(file)


def _refuse_other_forms(wanted: Wanted, module: str, attribute: str) -> None:
    path = Path(module)
    if path.suffix == ".py" or len(path.parts) > 1:
        dotted = ".".join(part for part in path.with_suffix("").parts if part not in ("/", ".", ".."))
        raise ConfigError(
            f"a {wanted.what} of your own is named by its module, not by a file; give {wanted.option} "
            f"{dotted}:{attribute or wanted.example}, "
            "from the folder that holds its first part"
        )
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{wanted.name!r} doesn't name a {wanted.what}; give {wanted.forms}")


def _imported(module: str, wanted: Wanted) -> ModuleType:
    with current_directory_importable():
        try:
            with told_as_sentence(f"{module} can't be imported"):
                return _import(module)
        except ConfigError as error:
            cause = error.__cause__
            missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
            if missing is not None and (module == missing or module.startswith(f"{missing}.")):
                raise ConfigError(
                    f"there is no module {missing!r} for the {wanted.what} {wanted.name!r} in {Path.cwd()} or on "
                    "sys.path" + _offer(missing.rpartition(".")[2], _modules_beside(missing))
                ) from cause
            if isinstance(cause, SyntaxError):
                place = _short(cause.filename or f"{module.replace('.', '/')}.py")
                line = "" if cause.lineno is None else f", line {cause.lineno}"
                raise ConfigError(
                    f"{module} can't be imported: {place}{line} is not valid Python ({cause.msg})"
                ) from cause
            if isinstance(cause, ImportError) and "relative import" in str(cause):
                raise ConfigError(
                    f"{error}; it belongs to a package, so name it from the folder above: {wanted.option} "
                    f"{Path.cwd().name}.{wanted.name}"
                ) from cause
            raise


def _import(module: str) -> ModuleType:
    importlib.invalidate_caches()  # files may be younger than what Python remembers of their folder
    return importlib.import_module(module)


@contextmanager
def current_directory_importable() -> Iterator[None]:
    """Look into the current directory first, as Python does; it stays last, for what a model imports later."""
    here = str(Path.cwd())
    if "" in sys.path or here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        sys.path.append(here)


def _modules_beside(missing: str) -> list[str]:
    """Names of the modules that could have been meant: of the package, or of the current directory."""
    parent = missing.rpartition(".")[0]
    folders = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [str(Path.cwd())]
    return [found.name for found in pkgutil.iter_modules(folders)]


def _offer(word: str, known: Iterable[str]) -> str:
    """The clause of `nearest`; a long list is not shown."""
    names = list(known)
    clause = nearest(word, names)
    return clause if len(names) <= _MOST_OFFERED or "did you mean" in clause else ""


def _below_installed(file: Path) -> bool:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(file.is_relative_to(Path(sysconfig.get_path(kind)).resolve()) for kind in kinds)


def _line_of(error: BaseException) -> str:
    """The deepest line of the user's own code that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        if not _below_installed(path := Path(frame.filename).resolve()) and not path.is_relative_to(_HERE)
    ]
    return f" ({_short(own[-1].filename)}, line {own[-1].lineno})" if own else ""


def _place(module: ModuleType) -> str:
    return f"the module {module.__name__} ({_short(getattr(module, '__file__', None))})"


def _short(file: str | None) -> str:
    """A file's path, from the current directory where it is below that."""
    path, here = Path(file or "?"), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
