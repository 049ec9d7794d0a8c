"""Runs one program with nearly nothing allowed. Started by `run_program` as a process of its own, never imported.

Arguments: the program's file, its seconds of computing, its bytes of memory, the filter of system calls (hexadecimal,
or empty), and the folders of the packages that it may import.
"""

from __future__ import annotations

import ctypes
import os
import resource
import runpy
import sys
from typing import Any

_OPEN_FILES = 64
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = (
    *("ctypes.", "http.client.", "pty.", "resource.", "shutil.", "signal.", "socket.", "sqlite3.", "subprocess."),
    *("tempfile.", "urllib.", "os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir"),
    *("os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system", "os.truncate"),
    *("os.utime", "os.setxattr", "os.removexattr"),
)
_SET_FILTER, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38  # as in linux/prctl.h and linux/seccomp.h


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def main() -> None:
    """Take away what a program doesn't need, then run it."""
    program, seconds, memory, system_calls, *packages = sys.argv[1:]
    sys.argv[:] = [program]
    sys.path[:] = [*sys.path[1:], *packages]
    limit(int(seconds), int(memory))
    if system_calls:
        keep_only(bytes.fromhex(system_calls))
    sys.addaudithook(refuse)
    runpy.run_path(program, run_name="__main__")


def limit(seconds: int, memory: int) -> None:
    """Ask the kernel for limits: computing, memory, open files, and no file, core dump or process to be made at all."""
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(what)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))


def keep_only(system_calls: bytes) -> None:
    """Have the kernel refuse all system calls but those that a filter lets through."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    filter_ = _Filter(len(system_calls) // 8, system_calls)
    for order in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_FILTER, _FILTER, ctypes.addressof(filter_), 0, 0)):
        if prctl(*order) != 0:
            raise OSError(ctypes.get_errno(), "the program can't be confined")


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what Python reports that it is about to do, in words that say what it was."""
    if event.startswith(_REFUSED) or (event == "open" and arguments[2] & _WRITING):
        raise PermissionError(f"a program may not use {event} here")


if __name__ == "__main__":
    main()
