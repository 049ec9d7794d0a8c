"""The errors of holdfast: each names the thing that is wrong and the remedy, in a sentence.

They are raised where the mistake becomes visible to the user and before work is lost. The command line prints them
without a traceback.
"""

from __future__ import annotations

import difflib
import os
import signal
from collections.abc import Iterable

_LONGEST = 1_200  # characters of a sentence


class HoldfastError(Exception):
    """Anything that is the caller's to fix; the message says what to do.

    The message is a line of bounded length whatever was given: a value that is quoted in it may be a million characters
    long, or hold what a terminal obeys.
    """

    def __init__(self, sentence: object = "") -> None:
        super().__init__(_bounded(str(sentence)))


class DataError(HoldfastError, ValueError):
    """A data set, a file of it, or an array given as one is not what it must be."""


class ConfigError(HoldfastError, ValueError):
    """An option, a key of a configuration file or a combination of methods makes no sense."""


class CheckpointError(HoldfastError, RuntimeError):
    """A checkpoint is truncated, foreign, or can't be written."""


class FederationError(HoldfastError, RuntimeError):
    """A client, a worker or a round failed; the message names the clients and the round."""


class ProcessError(HoldfastError, RuntimeError):
    """One of the processes that train together has ended, does not answer, or disagrees with the others."""


class MissingDependencyError(HoldfastError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class HoldfastWarning(UserWarning):
    """Something runs, but probably not as intended."""


def _bounded(sentence: str) -> str:
    """The sentence on one line; of a long one the beginning, which names the thing, and the end with the remedy."""
    if len(sentence) > _LONGEST:
        sentence = f"{sentence[: _LONGEST * 2 // 3]} ... {sentence[-_LONGEST // 3 + 5 :]}"
    return sentence if sentence.isprintable() else "".join(c if c.isprintable() else " " for c in sentence)


#: What a command ends with when it saved its state because it was asked to end: sysexits' EX_TEMPFAIL, "try again".
EXIT_CODE = os.EX_TEMPFAIL


#: What a command ends with, where ``--strict`` asks for it, whose result should not be used.
UNHEALTHY = 3


class Interrupted(BaseException):
    """A signal asked for the end and the state is saved; not an `Exception`, so that nothing takes it for a failure.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"{self.signal.name} asked for the end; the state is saved")


def counted(count: int, what: str) -> str:
    """A count of things, one of them in the singular: ``"1 row"``, ``"3,000 rows"``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def nearest(word: str, known: Iterable[str]) -> str:
    """A clause that offers the known word nearest to `word`: ``"; did you mean 'epochs'?"`` or the choices.

    Args:
        word: what was given.
        known: what would have been understood.

    Returns:
        A clause to append to an error message.
    """
    choices = sorted(known)
    close = difflib.get_close_matches(str(word)[:_LONGEST], choices, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(choices)}" if choices else ""


def expect_kind(argument: str, value: object, kind: type | tuple[type, ...], wanted: str, by_name: str = "") -> None:
    """Refuse an argument of another kind with a sentence: the name of a method, say, where the method is wanted.

    Args:
        argument: what the argument is called.
        value: what was given.
        kind: what it must be an instance of.
        wanted: that in words, with an example.
        by_name: what makes one of a name, such as ``"holdfast.build_method({!r})"``, where something does.

    Raises:
        ConfigError: if it is of another kind.

    Example:
        >>> expect_kind("settings", 5, dict, "a dict such as {}")
        Traceback (most recent call last):
        holdfast.errors.ConfigError: settings must be a dict such as {}, and is an int
    """
    if isinstance(value, kind):
        return
    if isinstance(value, str):
        given = f"is the text {value!r}" + (f"; write {by_name.format(value)}" if by_name else "")
    elif isinstance(value, type) and issubclass(value, kind):
        given = f"is the class {value.__name__}; write {value.__name__}(...), which makes one"
    else:
        name = type(value).__name__
        given = f"is {'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
    raise ConfigError(f"{argument} must be {wanted}, and {given}")
