"""Backward passes that must not happen in this process, because it is going to be forked.

Where torch sees an accelerator, its first backward pass starts a thread per device, and a process that is forked from
then on can't take gradients any more. Workers of the pool are forks, so what is tried out before they are made is tried
in a fork of its own.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from holdfast.errors import FederationError

Value = TypeVar("Value")


def backward_spoils_forks() -> bool:
    """Whether a process that has taken gradients can't be forked into one that does."""
    accelerator = getattr(torch, "accelerator", torch.cuda)  # torch 2.4 and 2.5 have CUDA's question only
    return bool(accelerator.is_available())


def run_apart(function: Callable[[], Value]) -> Value:
    """What a function gives that takes gradients, without spoiling this process for forks where that can be avoided.

    It can't where gradients were taken before: a fork fails then, and the function is run here. So is one that raises,
    whose error is then its own.
    """
    if backward_spoils_forks():
        try:
            return run_forked(function)
        except FederationError:
            pass
    return function()


def run_forked(function: Callable[[], Value]) -> Value:
    """What a function gives, run in a fork of this process; its result must be plain.

    Raises:
        FederationError: if it raises, with its type and message, or if the fork ends without an answer.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        failure, value = ours.recv()
    except EOFError as error:
        raise FederationError("a process that tried the model out ended without an answer; is there memory?") from error
    finally:
        process.join()
    if failure is not None:
        raise FederationError(failure)
    return value  # type: ignore[no-any-return]


def _answer(function: Callable[[], Any], pipe: Connection) -> None:
    try:
        answer: tuple[str | None, Any] = (None, function())
    except Exception as error:  # whatever it is, it is told to who asked
        answer = (f"{type(error).__name__}: {error}", None)
    pipe.send(answer)
