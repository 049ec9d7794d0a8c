"""LEAF's JSON files (Caldas et al. 2018): users, how many samples each has, and each user's x and y.

The paper is https://arxiv.org/abs/1812.01097. A folder has either ``train/*.json`` and ``test/*.json``, what LEAF's
script writes with ``-t sample``, or ``all_data/*.json``, which is split here. Files are read one at a time and only the
users that are wanted are kept: all of FEMNIST is gigabytes, a sample of its writers isn't.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import Clients, Task
from holdfast.data.clients.partitions import Partition, hold_out_tenth, split_parts
from holdfast.errors import DataError
from holdfast.streams import data_stream

_log = logging.getLogger(__name__)

#: Inputs and labels of one user, arrays with a row per sample.
User = tuple[NDArray[Any], NDArray[np.int64]]

#: Turns the x and y of a file into arrays; raises ValueError where they aren't what they must be.
Convert = Callable[[Any, Any], User]


@dataclass(frozen=True)
class LeafUsers:
    """The users of a LEAF folder.

    Attributes:
        train: by name, in the order of names; everything where the folder isn't split.
        test: by name, the same users; None where the folder isn't split.
    """

    train: Mapping[str, User]
    test: Mapping[str, User] | None


def leaf_folder(folder: Path) -> Path:
    """`folder` or the ``data`` in it, whichever has LEAF's subfolders."""
    for place in (folder, folder / "data"):
        if (place / "all_data").is_dir() or ((place / "train").is_dir() and (place / "test").is_dir()):
            return place
    raise DataError(f"{folder} has neither train/ and test/ nor all_data/; put the folders that LEAF writes there")


def read_leaf(folder: Path, convert: Convert, limit: int | None, seed: int, at_least: int = 2) -> LeafUsers:
    """Read a random sample of the users.

    Args:
        folder: what `leaf_folder` found.
        convert: makes arrays of a user's x and y.
        limit: how many users; None takes all. Users are ranked by a hash of seed and name, so the sample depends on
            neither the number nor the order of the files.
        seed: decides the sample.
        at_least: users with fewer samples are left out, and counted in the log.

    Returns:
        The users.

    Raises:
        DataError: if a file isn't in LEAF's form; the message names the file and the user.
    """
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        train, test = _users(folder / "train", convert), dict(_users(folder / "test", convert))
    else:
        train, test = _users(folder / "all_data", convert), None
    users: dict[str, User] = {}
    seen: set[str] = set()
    small = 0
    for name, user in train:
        if name in seen:
            raise DataError(f"user {name!r} occurs twice in {folder}; keep one set of LEAF's files there")
        seen.add(name)
        if test is not None and (name not in test or len(test[name][1]) == 0):
            raise DataError(f"user {name!r} of {folder} has no test samples; run LEAF's script with -t sample")
        if len(user[1]) == 0 or len(user[1]) + (len(test[name][1]) if test is not None else 0) < at_least:
            small += 1
            continue
        users[name] = user
        if limit is not None and len(users) > limit:
            del users[max(users, key=lambda each: _rank(seed, each))]
    if small:
        _log.warning("%d users of %s have fewer than %d samples and are left out", small, folder, at_least)
    if not users:
        raise DataError(f"{folder} has no user with at least {at_least} samples; run LEAF's script again")
    if limit is not None and len(users) < limit:
        _log.warning("%s has %d users where %d were wanted", folder, len(users), limit)
    names = sorted(users)
    return LeafUsers(
        {name: users[name] for name in names}, None if test is None else {name: test[name] for name in names}
    )


def federate(users: LeafUsers, classes: int, seed: int, *, shuffle: bool = True, task: Task = "classes") -> Clients:
    """A client per user: split 72/8/20, or, where the files are split, with a tenth of the training data held out.

    Args:
        users: what `read_leaf` gave.
        classes: how many there are.
        seed: decides the split.
        shuffle: whether training samples are mixed before the last tenth is held out; LEAF keeps them by class.
        task: how outputs are scored.

    Returns:
        The clients, named by user.
    """
    inputs, labels, counts = _stacked(users.train)
    partition, rng = Partition(np.arange(len(labels)), counts), data_stream(seed, "leaf")
    if users.test is None:
        parts = [part.gather(inputs, labels) for part in split_parts(partition, rng)]
    else:
        mixed = partition.shuffled(rng) if shuffle else partition
        test_inputs, test_labels, test_counts = _stacked(users.test)
        test = Partition(np.arange(len(test_labels)), test_counts)
        parts = [part.gather(inputs, labels) for part in hold_out_tenth(mixed)]
        parts.append(test.gather(test_inputs, test_labels))
    train, validation, held_out = parts
    return Clients(train, validation, held_out, classes, task, tuple(users.train)).check()


def _stacked(users: Mapping[str, User]) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]:
    inputs = torch.from_numpy(np.concatenate([user[0] for user in users.values()]))
    labels = torch.from_numpy(np.concatenate([user[1] for user in users.values()]))
    return inputs, labels, np.array([len(user[1]) for user in users.values()], np.int64)


def _users(folder: Path, convert: Convert) -> Iterator[tuple[str, User]]:
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder} has no json files; run LEAF's script again")
    for path in paths:
        content = _read(path)
        for name, count in zip(content["users"], content["num_samples"], strict=True):
            yield str(name), _user(path, str(name), count, content["user_data"], convert)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read as JSON ({error}); it is damaged: make it again") from error
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise DataError(f"{path} has no {key!r}; LEAF's files have users, num_samples and user_data")
    if len(content["users"]) != len(content["num_samples"]):
        raise DataError(
            f"{path} has {len(content['users'])} users and {len(content['num_samples'])} num_samples; make it again"
        )
    return dict(content)


def _user(path: Path, name: str, count: Any, user_data: Mapping[str, Any], convert: Convert) -> User:
    data = user_data.get(name)
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in ("x", "y")):
        raise DataError(f"{path} has no x and y for user {name!r}; make it again")
    if not len(data["x"]) == len(data["y"]) == count:
        raise DataError(
            f"user {name!r} of {path} has {len(data['x'])} x, {len(data['y'])} y and num_samples {count}; make it again"
        )
    if not count:
        return np.empty(0), np.empty(0, np.int64)
    try:
        return convert(data["x"], data["y"])
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"user {name!r} of {path} has values that don't fit: {error}") from error


def _rank(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
