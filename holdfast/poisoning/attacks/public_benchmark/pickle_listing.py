"""The instructions of a pickle as a listing: what it describes, with every call written down and none made.

The standard library's tokenizer names the instructions; a stack puts lists, numbers and bytes together. Nothing that
the pickle names is looked up.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import DataError

_MARK = object()


@dataclass(frozen=True)
class Name:
    """Something that a pickle refers to by name, not looked up.

    Attributes:
        path: module and name, joined by a dot.
    """

    path: str


@dataclass(eq=False)
class Call:
    """A call that a pickle asks for, not made.

    Attributes:
        name: what it would call.
        arguments: with what.
        state: what it would set on the result.
    """

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def list_calls(content: bytes) -> Any:
    """What a pickle describes, with calls as `Call` and names as `Name`.

    Args:
        content: the bytes.

    Returns:
        Nested plain values.

    Raises:
        DataError: if an instruction occurs that data doesn't need.
    """
    machine = _Machine()
    for code, argument, _ in pickletools.genops(content):
        if code.name == "STOP":
            return machine.stack.pop()
        machine.run(code.name, argument)
    raise DataError("it ends in the middle")


class _Machine:
    """The stack of a pickle, and what it has stored for later."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, code: str, argument: Any) -> None:
        if code in _LITERALS:
            self.stack.append(argument)
        elif code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code]())
        elif code in _ACTIONS:
            _ACTIONS[code](self, argument)
        elif code not in ("PROTO", "FRAME"):
            raise DataError(f"it has the instruction {code}, which data doesn't need")

    def store(self, place: int | None) -> None:
        self.memo[len(self.memo) if place is None else place] = self.stack[-1]

    def recall(self, place: int) -> None:
        self.stack.append(self.memo[place])

    def collect(self, kind: type, count: int | None = None) -> None:
        self.stack.append(kind(self._last(count)))

    def extend(self, count: int | None) -> None:
        items = self._last(count)
        self.stack[-1].extend(items)

    def set_items(self, count: int | None) -> None:
        items = self._last(count)
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def name(self) -> None:
        module, name = self._last(2)
        self.stack.append(Name(f"{module}.{name}"))

    def call(self) -> None:
        name, arguments = self._last(2)
        self.stack.append(Call(name.path, arguments))

    def set_state(self) -> None:
        state = self.stack.pop()
        self.stack[-1].state = state

    def _last(self, count: int | None) -> list[Any]:
        """Take the last values off the stack; all since the mark where no number is given."""
        if count is None:
            start = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
            items = self.stack[start + 1 :]
        else:
            start = len(self.stack) - count
            items = self.stack[start:]
        del self.stack[start:]
        return items


_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MEMOIZE": lambda machine, _: machine.store(None),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), _Machine.store),
    **dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), _Machine.recall),
    "TUPLE1": lambda machine, _: machine.collect(tuple, 1),
    "TUPLE2": lambda machine, _: machine.collect(tuple, 2),
    "TUPLE3": lambda machine, _: machine.collect(tuple, 3),
    "TUPLE": lambda machine, _: machine.collect(tuple),
    "LIST": lambda machine, _: machine.collect(list),
    "APPEND": lambda machine, _: machine.extend(1),
    "APPENDS": lambda machine, _: machine.extend(None),
    "SETITEM": lambda machine, _: machine.set_items(2),
    "SETITEMS": lambda machine, _: machine.set_items(None),
    "GLOBAL": lambda machine, argument: machine.stack.append(Name(argument.replace(" ", "."))),
    "STACK_GLOBAL": lambda machine, _: machine.name(),
    "REDUCE": lambda machine, _: machine.call(),
    "NEWOBJ": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.set_state(),
}
