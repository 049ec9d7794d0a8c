"""The system calls that a confined program keeps, as a filter for Linux's seccomp.

A program that computes needs memory, the clock and files to read: its libraries. All else answers "no such call", as
an old kernel would: no sockets, no processes, no threads, no signals to others, no file opened for writing, removed,
renamed or changed. What isn't listed is refused, so calls that a newer kernel brings are too. The filter is enforced by
the kernel, also against a program that runs as root, and can't be taken off again.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

# Numbers of the calls on x86-64 and on 64-bit ARM; None where a machine doesn't have the call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
}
_OPENAT = (257, 56)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Berkeley packet filter, as in linux/bpf_common.h and linux/seccomp.h.
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER_AT, _MACHINE_AT, _THIRD_ARGUMENT_AT = 0, 4, 32
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | 38  # 38: ENOSYS


def system_call_filter() -> bytes | None:
    """The filter for this machine, in the form the kernel takes; None where there is none to be had."""
    if sys.platform != "linux" or not Path("/proc/sys/kernel/seccomp/actions_avail").exists():
        return None
    return filter_for(os.uname().machine)


def filter_for(machine: str) -> bytes | None:
    """The filter for a kind of machine, as `os.uname` calls it; None for one whose calls aren't listed."""
    if machine not in _MACHINES:
        return None
    column, architecture = _MACHINES[machine]
    allowed = [number for numbers in _CALLS.values() if (number := numbers[column]) is not None]
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_EQUAL, len(allowed) - place + 4, 0, number) for place, number in enumerate(allowed)),
        (_EQUAL, 0, 3, _OPENAT[column]),
        (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
        (_AND, 0, 0, _WRITING),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
