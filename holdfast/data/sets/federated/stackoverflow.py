"""StackOverflow (TensorFlow Federated): guess the most frequent tag of a post from its words, a client per user.

Two vocabularies and one file of posts are read. The vocabularies are TFF's ``stackoverflow.word_count``, a word and its
count per line, and ``stackoverflow.tag_count``, a JSON object of tags and counts, both most frequent first. Posts are
in TFF's ``stackoverflow_train.h5`` (groups examples/USER with the datasets tokens, title and tags; needs h5py), or in
``train.parquet`` with the columns user, tokens, title and tags, which needs nothing else and can be exported from
TFF's newer SQLite form. Tokens and titles are words with blanks between them, tags have bars between them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.data.archives import allowance
from holdfast.data.clients.clients import Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.readers.leaf import LeafUsers, federate
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError, MissingDependencyError

_log = logging.getLogger(__name__)

#: The vocabularies' sizes; the model `holdfast.models.BagOfWords` has as many words.
WORDS, TAGS = 10_000, 500

#: Tokens, title and tags of one post.
Post = tuple[str, str, str]


def read_words(path: Path, count: int) -> dict[str, int]:
    """The `count` most frequent words and their ranks, from a file with a word at the start of each line."""
    try:
        with path.open(encoding="utf-8") as stream:
            words = [line.split()[0] for line in islice(stream, count) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read: {error}") from error
    if len(words) < count:
        raise DataError(f"{path} has {len(words)} words where {count} are wanted; it is truncated: get it again")
    return {word: rank for rank, word in enumerate(words)}


def read_tags(path: Path, count: int) -> dict[str, int]:
    """The `count` most frequent tags and their ranks, from a JSON object of tags and counts."""
    try:
        tags = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read as JSON ({error}); get it again") from error
    if not isinstance(tags, dict) or len(tags) < count or not all(isinstance(n, int) for n in tags.values()):
        raise DataError(f"{path} must be an object of at least {count} tags and their counts; get it again")
    by_count = sorted(tags, key=lambda tag: -tags[tag])
    return {tag: rank for rank, tag in enumerate(by_count[:count])}


def encode(
    posts: Iterable[Post], words: dict[str, int], tags: dict[str, int]
) -> tuple[list[list[int]], list[int], int]:
    """Posts as ranks of words, their labels, and how many posts were dropped for want of a known tag.

    A word out of the vocabulary gets the rank ``len(words)``: it counts in the mean and has no weight. The label is
    the most frequent of a post's tags.
    """
    texts, labels, dropped = [], [], 0
    for tokens, title, tagged in posts:
        known = [tags[tag] for tag in tagged.split("|") if tag in tags]
        if not known:
            dropped += 1
            continue
        texts.append([words.get(word, len(words)) for word in f"{tokens} {title}".split()])
        labels.append(min(known))
    return texts, labels, dropped


def read_h5(path: Path) -> Iterator[tuple[str, list[Post]]]:
    """Users and their posts in the order of names, from TFF's HDF5 file."""
    try:
        import h5py  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            f"{path} needs h5py; pip install 'holdfast[stackoverflow]', or export the posts to train.parquet"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            examples = file["examples"]
            for user in sorted(examples):
                stored = [examples[user][key] for key in ("tokens", "title", "tags")]
                if sum(column.nbytes for column in stored) > allowance(path):
                    raise ValueError(f"user {user!r} has more bytes than such a file may hold")
                columns = [column[()] for column in stored]
                tokens, title, tags = ([_text(value) for value in column] for column in columns)
                yield user, list(zip(tokens, title, tags, strict=True))
    except (OSError, KeyError, ValueError, AttributeError, TypeError, MemoryError) as error:
        raise DataError(f"{path} isn't TFF's file of posts ({error}); get it again") from error


def read_parquet(path: Path) -> Iterator[tuple[str, list[Post]]]:
    """Users and their posts in the order of names, from a parquet file with a row per post."""
    import pyarrow as pa  # noqa: PLC0415 - takes a while, and few need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = ["user", "tokens", "title", "tags"]
    try:
        table = pq.read_table(path, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as parquet ({error}); get it again") from error
    for column in columns:
        if column not in table.column_names:
            raise DataError(f"{path} has no column {column!r}; it needs {', '.join(columns)}")
    rows = zip(*(table[column].cast(pa.string()).fill_null("").to_pylist() for column in columns), strict=True)
    for user, group in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
        yield user, [(tokens, title, tags) for _, tokens, title, tags in group]


@register_federation
@dataclass(frozen=True)
class StackOverflow(FederatedData):
    """A client per user: the first ones by name.

    A post is a row of word ranks, int16, padded with -1; `holdfast.models.BagOfWords` makes the mean of one-hot words
    of it. As dense rows 400 users would take six gigabytes.

    Attributes:
        users: how many. Posts with none of the 500 most frequent tags are dropped, and counted in the log.
    """

    name = "stackoverflow"
    summary = "StackOverflow posts by user (TFF): 400 users, 500 tags, for logistic regression on 10,000 words"
    files = (
        RemoteFile("stackoverflow/stackoverflow_train.h5", also=("stackoverflow/train.parquet",)),
        RemoteFile("stackoverflow/stackoverflow.word_count"),
        RemoteFile("stackoverflow/stackoverflow.tag_count"),
    )
    by_hand = (
        "get stackoverflow_train.h5, stackoverflow.word_count and stackoverflow.tag_count with "
        "tff.simulation.datasets.stackoverflow (or export train.parquet with user, tokens, title, tags) and put them "
        "into stackoverflow/"
    )
    recipe: ClassVar[Any] = TrainingRecipe(
        "bag-of-words",
        0.01,
        100,
        rounds=400,
        cohort=50,
        local_steps=0,
        local_epochs=1,
        halve_every=200,
        weak=(0.05, 0.1, 0.3),
        strong=(0.01, 0.05, 0.1),
        fixed=(0.05, 0.1, 0.3),
    )

    users: int = 400

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the first users' posts and split each user's 72/8/20."""
        path = self.locate(root, "stackoverflow/stackoverflow_train.h5", "stackoverflow/train.parquet")
        words = read_words(self.locate(root, "stackoverflow/stackoverflow.word_count"), WORDS)
        tags = read_tags(self.locate(root, "stackoverflow/stackoverflow.tag_count"), TAGS)
        posts = read_parquet(path) if path.suffix == ".parquet" else read_h5(path)
        encoded: dict[str, tuple[list[list[int]], list[int]]] = {}
        dropped = small = 0
        for user, of_user in posts:
            texts, labels, without = encode(of_user, words, tags)
            dropped += without
            if len(labels) < 2:
                small += 1
                continue
            encoded[user] = texts, labels
            if len(encoded) == self.users:
                break
        _log.info(
            "%d posts with none of the %d tags were dropped, and %d users with too few left", dropped, TAGS, small
        )
        if not encoded:
            raise DataError(f"{path} has no user with two posts under the {TAGS} most frequent tags; get it again")
        longest = max(len(text) for texts, _ in encoded.values() for text in texts)
        padded = {
            user: (_padded(texts, max(longest, 1)), np.array(labels, np.int64))
            for user, (texts, labels) in encoded.items()
        }
        return federate(LeafUsers(padded, None), TAGS, seed)


def _padded(texts: list[list[int]], longest: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    rows = np.full((len(texts), longest), -1, np.int16)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return rows


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
