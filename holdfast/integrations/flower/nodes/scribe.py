"""A node's log: what SuperNode and executor print, made harmless. A server chooses some of the words in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.integrations.flower.operation.private import private_files

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 2000


def write_escaped(source: int, log: Path) -> None:
    """Copy lines from a pipe to a file until the pipe ends, with everything that could move a cursor written out."""
    with private_files(), log.open("a", encoding="utf-8") as out, os.fdopen(source, "rb") as lines:
        for line in lines:
            out.write(f"{harmless(line.decode('utf-8', 'replace'))}\n")
            out.flush()


def harmless(line: str) -> str:
    """A line without colours, in printable letters, of bounded length."""
    plain = _COLOUR.sub("", line.rstrip("\n"))[:_LONGEST]
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in plain)
