"""A reply, put together from the parts that Flower stores it in; nothing is fetched that was not asked for.

Flower cuts a message into objects, each known by the SHA-256 of its content: the message names its records, a record
its arrays, an array its chunks. A sender decides what they contain. So the walk goes from the top: the names of records
and arrays are compared with what was asked for, the length of every object is bounded by what may come, and an array
of a gigabyte that nobody asked for is refused from its name, before its first byte is fetched.

Everything else that can be wrong in an object (a length that lies, JSON that is nested ten thousand deep, a record that
is no protobuf, chunks that are repeated a million times) is a `RejectedError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from holdfast.integrations.flower.messages.arrays import HEADER_BYTES, RejectedError
from holdfast.integrations.flower.messages.wire import ARRAYS, HEAD, shown

#: Most bytes of an object that names others, and of what stands before the body of a chunk; bytes that a sender cuts
#: arrays into, at least, and of an id.
_NAMES, _CHUNK_HEAD, _CHUNK, _ID_BYTES = 2**16, 64, 2**16, 80
_DIVIDER = b"\x00"
_ID = re.compile(r"[0-9a-f]{64}")
#: What an object of plain values may need per client, and without any.
_PLAIN, _PLAIN_OF_CLIENT = 2**14, 1024

#: Takes the id of an object and the most bytes that it may have; None if it has not been sent yet.
Fetch = Callable[[str, int], bytes | None]


@dataclass(frozen=True)
class Limits:
    """What a reply may be.

    Attributes:
        arrays: the most bytes of each array by name; others are refused.
        plain: the most bytes of its plain values.
    """

    arrays: Mapping[str, int] = field(default_factory=dict)
    plain: int = _PLAIN

    @classmethod
    def of(cls, clients: int, arrays: Mapping[str, int] | None = None) -> Limits:
        """Of a reply about so many clients with such arrays."""
        return cls(dict(arrays or {}), _PLAIN + _PLAIN_OF_CLIENT * clients)

    @property
    def total(self) -> int:
        """The most bytes of all."""
        return self.plain + sum(self.arrays.values())

    def check(self, content: RecordDict) -> None:
        """Refuse records and arrays that nobody asked for, for a Grid that has fetched them already.

        Raises:
            RejectedError: which names the first.
        """
        _refuse_strangers(content, {HEAD, ARRAYS}, "record")
        arrays = content.get(ARRAYS, ArrayRecord())
        if not isinstance(arrays, ArrayRecord) or not isinstance(content.get(HEAD), ConfigRecord):
            raise RejectedError("its records are not of the kinds that they must be")
        _refuse_strangers(arrays, self.arrays, "array")
        for name, array in arrays.items():
            if len(array.data) > self.arrays[name] + HEADER_BYTES:
                raise RejectedError(f"its array {name!r} has {len(array.data):,} bytes, and {self.arrays[name]:,} fit")


class NotYetError(Exception):
    """A part of the message has not been sent yet."""


@dataclass
class Download:
    """A message under way from the SuperLink to the server; what was fetched is kept until the rest is there.

    Attributes:
        message: id of the object that stands for the message.
        limits: what it may be.
    """

    message: str
    limits: Limits
    _parts: dict[str, bytes] = field(default_factory=dict)

    def assemble(self, fetch: Fetch) -> RecordDict:
        """The message's content.

        Args:
            fetch: gets one object.

        Raises:
            NotYetError: if a part has not been sent yet.
            RejectedError: if it is not what was asked for.
        """
        kind, children, _ = self._part(fetch, self.message, _NAMES)
        if kind != "Message" or len(children) != 1:
            raise RejectedError(f"it is a {shown(kind)} with {len(children)} parts where a message must come")
        records = self._names(fetch, children[0], "RecordDict", {HEAD, ARRAYS}, "record")
        if HEAD not in records:
            raise RejectedError("it has no part named 'holdfast'; the sender isn't holdfast")
        head = self._plain(fetch, records[HEAD])
        arrays: dict[str, str] = {}
        if ARRAYS in records:
            arrays = self._names(fetch, records[ARRAYS], "ArrayRecord", self.limits.arrays, "array")
        held = {name: self._array(fetch, name, part) for name, part in arrays.items()}
        return RecordDict({HEAD: head, ARRAYS: ArrayRecord(held)})

    def _plain(self, fetch: Fetch, part: str) -> ConfigRecord:
        kind, children, _ = self._part(fetch, part, self.limits.plain)
        if kind != "ConfigRecord" or children:
            raise RejectedError(f"its plain values are a {shown(kind)}")
        return ConfigRecord.inflate(self._parts[part])

    def _names(
        self, fetch: Fetch, part: str, wanted: str, known: Mapping[str, Any] | set[str], what: str
    ) -> dict[str, str]:
        """What each named part of an object is, by its id."""
        kind, children, body = self._part(fetch, part, _NAMES)
        names = json.loads(body)
        if kind != wanted or not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise RejectedError(f"its {what}s are a {shown(kind)} and no {wanted}")
        _refuse_strangers(names, known, what)
        if set(names.values()) != set(children):
            raise RejectedError(f"its {what}s are not those that it announces")
        return names

    def _array(self, fetch: Fetch, name: str, part: str) -> Array:
        most = self.limits.arrays[name] + HEADER_BYTES
        kind, children, body = self._part(fetch, part, _NAMES + most // _CHUNK * _ID_BYTES)
        about = json.loads(body)
        if kind != "Array" or not isinstance(about, dict):
            raise RejectedError(f"its array {name!r} is a {shown(kind)}")
        chunks, pieces, left = about.get("arraychunk_ids"), list[memoryview](), most
        if not isinstance(chunks, list) or not all(type(each) is int and 0 <= each < len(children) for each in chunks):
            raise RejectedError(f"its array {name!r} is made of chunks that are not there")
        for each in chunks:
            kind, none, _ = self._part(fetch, children[each], left + _CHUNK_HEAD)
            if kind != "ArrayChunk" or none:
                raise RejectedError(f"its array {name!r} is made of a {shown(kind)}")
            content = self._parts[children[each]]
            pieces.append(memoryview(content)[content.index(_DIVIDER) + 1 :])
            left -= len(pieces[-1])
            if left < 0:
                raise RejectedError(f"its array {name!r} has more than the {most:,} bytes that fit")
        dtype, shape, stype = about.get("dtype"), about.get("shape"), about.get("stype")
        if not isinstance(dtype, str) or not isinstance(stype, str) or not isinstance(shape, list):
            raise RejectedError(f"its array {name!r} does not say what it is")
        if not all(type(side) is int for side in shape):
            raise RejectedError(f"its array {name!r} has a shape that is none")
        return Array(dtype, tuple(shape), stype, b"".join(pieces))

    def _part(self, fetch: Fetch, part: str, most: int) -> tuple[str, list[str], bytes]:
        """Kind, children and body of an object."""
        if part not in self._parts:
            content = fetch(part, most)
            if content is None:
                raise NotYetError
            self._parts[part] = content
        return split_object(self._parts[part])


def split_object(content: bytes) -> tuple[str, list[str], bytes]:
    """Kind, children's ids and body of an object.

    Raises:
        RejectedError: if it is none.
    """
    end = content.find(_DIVIDER)
    pieces = content[: max(end, 0)].decode("utf-8", "replace").split(" ")
    if end < 0 or len(pieces) != 3 or pieces[2] != str(len(content) - end - 1):
        raise RejectedError("a part of it is not in Flower's format")
    children = pieces[1].split(",") if pieces[1] else []
    if not all(_ID.fullmatch(child) for child in children):
        raise RejectedError("a part of it names parts that can't be")
    # Arrays are large; a chunk's body is taken from the content itself.
    return pieces[0], children, b"" if pieces[0] == "ArrayChunk" else content[end + 1 :]


def _refuse_strangers(names: Mapping[str, Any], known: Mapping[str, Any] | set[str], what: str) -> None:
    strange = [name for name in names if name not in known]
    if strange:
        raise RejectedError(f"it has the {what} {shown(strange[0])}, which nobody asked for")
