"""An unpickler with an allow list: what a pickle describes is written down, and nothing that it names is called.

Loading a pickle calls whatever functions it names. Here every name must be in a table, which gives a class of ours for
it: `Described` keeps the arguments and the state of a call. The instructions are read once before they are run, by the
standard library's `pickletools`, so that no length, no place and no key of a dictionary can cost more than the file.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import DataError

#: Each instruction makes at most a small object: a million of them are some 250 MB. A package has less than 100,000.
MOST_INSTRUCTIONS = 1_000_000

_INSTRUCTIONS = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
        *("EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD"),
    }
)
_STORE = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})
_RECALL = frozenset({"GET", "BINGET", "LONG_BINGET"})


class Described:
    """A call that a pickle asks for, not made.

    It has a `__setstate__` and no dictionary, so that a pickle can set the state of one call and change nothing else:
    neither the class nor what later files are read with.

    Attributes:
        rebuild: what makes the value that the call stands for, given by the class of each name.
        arguments: of the call.
        state: what would be set on its result.
    """

    __slots__ = ("arguments", "state")

    rebuild: Callable[..., Any]
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> Described:
        """Keep the arguments."""
        described = super().__new__(cls)
        described.arguments, described.state = arguments, None
        return described

    def __setstate__(self, state: Any) -> None:
        self.state = state


def allow(functions: Mapping[str, Callable[..., Any]]) -> dict[str, type[Described]]:
    """A class for each name (``module.name``) that may occur, with the function that rebuilds its value."""
    return {
        name: type(name, (Described,), {"__slots__": (), "rebuild": function}) for name, function in functions.items()
    }


def read_described(content: bytes, allowed: Mapping[str, type[Described]]) -> Any:
    """What a pickle describes: plain values, and calls as instances of the allowed classes.

    Args:
        content: the pickle.
        allowed: as `allow` gives them.

    Returns:
        Nested values, in which the same value may occur many times.

    Raises:
        DataError: if the pickle asks for something that data doesn't need. A damaged one raises anything.
    """
    _check(content)
    return _Unpickler(content, allowed).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, allowed: Mapping[str, type[Described]]) -> None:
        super().__init__(io.BytesIO(content))
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str) -> type[Described]:
        name = f"{module_name}.{global_name}"
        if name not in self._allowed:
            raise DataError(f"it asks for {name[:80]!a}, which is not data")
        return self._allowed[name]


def _check(content: bytes) -> None:
    """Follow the stack of the pickle by the kinds of its values; lengths are checked against the file by `genops`.

    Unpicklers make room for the place that a value is stored at, and hash keys, which takes for ever for a tuple of
    tuples that all are the same one: places are bounded, and keys are text.
    """
    stacks: list[list[pickletools.StackObject]] = [[]]
    memo: dict[int, pickletools.StackObject] = {}
    for number, (code, argument, _) in enumerate(pickletools.genops(content)):
        if number >= MOST_INSTRUCTIONS:
            raise DataError(f"it has more than {MOST_INSTRUCTIONS:,} instructions")
        if code.name in _STORE:
            place = len(memo) if argument is None else int(argument)
            if place >= MOST_INSTRUCTIONS:
                raise DataError(f"it stores a value at place {place:,}")
            memo[place] = stacks[-1][-1]
        elif code.name in _RECALL:
            stacks[-1].append(memo[int(argument or 0)])
        elif code.name not in _INSTRUCTIONS:
            raise DataError(f"it has the instruction {code.name}, which data doesn't need")
        elif code.name == "MARK":
            stacks.append([])
        else:
            items = _take(stacks, code.stack_before)
            keys = {"SETITEM": items[1:2], "SETITEMS": items[1::2]}.get(code.name, [])
            if any(key is not pickletools.pyunicode for key in keys):
                raise DataError("it has a dictionary whose keys are not text")
            stacks[-1].extend(code.stack_after)


def _take(
    stacks: list[list[pickletools.StackObject]], wanted: list[pickletools.StackObject]
) -> list[pickletools.StackObject]:
    """What an instruction takes off the stack; with a mark among it, everything above the mark."""
    above = stacks.pop() if pickletools.markobject in wanted else []
    count = len([one for one in wanted if one not in (pickletools.markobject, pickletools.stackslice)])
    rest = len(stacks[-1]) - count
    if rest < 0:
        raise ValueError("an instruction takes more than there is")
    items = stacks[-1][rest:]
    del stacks[-1][rest:]
    return items + above
