"""Names that import what they stand for when it is used, and not before.

A command shows the names of forty methods and trains with one of them: `LazyTable` knows where each is defined and
imports that one. A package gives its classes by short names: `lazy_names` imports the module of a name when somebody
asks for it, so ``from holdfast.federated import Ditto`` does not import the attacks. Nothing here imports torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar, cast

from holdfast.errors import ConfigError, nearest

T = TypeVar("T")


class LazyTable(MutableMapping[str, T]):
    """A table from the names that users type to objects, which are imported when they are looked up.

    Args:
        what: what the names stand for, in error messages: ``"method"``.
        entries: for each name ``"module:object"``, or the object itself.

    Example:
        >>> table = LazyTable("fraction", {"exact": "fractions:Fraction", "rounded": float})
        >>> list(table), table["exact"].__name__
        (['exact', 'rounded'], 'Fraction')
    """

    def __init__(self, what: str, entries: Mapping[str, str | T]) -> None:
        self.what = what
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = cast(T, _imported(*entry.split(":")))
        return entry

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def expect(self, name: str) -> None:
        """Refuse a name that is not in the table, without importing anything.

        Raises:
            ConfigError: if it is not; the message offers the nearest name.
        """
        if name not in self._entries:
            raise ConfigError(f"there is no {self.what} {name!r}{nearest(name, self._entries)}")

    def find(self, name: str) -> T:
        """The object called `name`.

        Raises:
            ConfigError: if there is none; the message offers the nearest name.
        """
        self.expect(name)
        return self[name]

    def awaits(self, name: str, cls: type) -> bool:
        """Whether `name` stands for this class, and it is being imported only now."""
        return self._entries.get(name) == f"{cls.__module__}:{cls.__qualname__}"


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are imported when they are used (PEP 562).

    What a name is, is said once, by the imports below ``if TYPE_CHECKING:`` of the package's ``__init__.py``: type
    checkers and editors follow them, and here they are read when the first name is asked for::

        if TYPE_CHECKING:
            from holdfast.poisoning.epic import Epic
        else:
            __getattr__, __dir__ = lazy_names(__name__)

    Submodules can be reached without an import of their own too: ``holdfast.spurious.reweighting``.

    Args:
        package: its ``__name__``.

    Returns:
        Both functions.
    """
    module = sys.modules[package]
    places: dict[str, tuple[str, str]] = {}

    def get(name: str) -> Any:
        if not places:
            places.update(_places(module))
        if name in places:
            value = _imported(*places[name])
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *module.__all__})

    return get, names


def _places(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Module and name of what is imported below ``if TYPE_CHECKING:``; the package's own submodules need no entry."""
    loader: Any = module.__spec__ and module.__spec__.loader
    tree = ast.parse(loader.get_source(module.__name__))
    blocks = (node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for block in blocks for node in block if isinstance(node, ast.ImportFrom))
    return {
        name.asname or name.name: (str(node.module), name.name)
        for node in imports
        if node.module != module.__name__
        for name in node.names
    }


def _imported(module: str, name: str) -> Any:
    """What ``from module import name`` gives: an attribute, or a submodule."""
    owner = import_module(module)
    return getattr(owner, name) if hasattr(owner, name) else import_module(f"{module}.{name}")
