"""Chats between students, whose next word is guessed, by sender: the package `chitchat-dataset` (MIT licence).

The package holds 258,145 messages of 1,315 people who chatted in pairs (the BYU Chit-Chat Challenge, 2018). A client is
a sender, as a phone with its keyboard would be: people differ in what they talk about and in how they write. An
example is a place within a message: the words before it are known, and the label is the word that stands there. It is
asked what Ditto's Table 11 asks of StackOverflow, text by user and a linear model, which has to be fetched by hand. A
sender's first messages in time are for training, the last for the test.

The file is JSON and is read where the package lies; none of the package's code is run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.clients.clients import ClientPart, Clients
from holdfast.data.clients.federations import FederatedData, TrainingRecipe, register_federation
from holdfast.data.packages import packaged_folder
from holdfast.errors import ConfigError, DataError

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")

#: The words of one message, in order.
Message = list[str]
#: The ranks of the words before a place of a message, and of the word that stands there.
Place = tuple[list[int], int]

_TRAINING, _VALIDATION = 0.72, 0.08


@register_federation
@dataclass(frozen=True)
class ChitChat(FederatedData):
    """A client per sender, those who wrote most.

    Attributes:
        senders: how many clients.
        messages: how many of each sender are read, the first in time; the busiest sent 25,272, the hundredth 379.
        words: how many of the most frequent words of all training messages the inputs know.
        classes: how many of these are guessed; places where another word stands are left out.
    """

    name = "chitchat"
    summary = "chat messages by sender: 100 people, guess which of 100 words comes next from the words before it"
    recipe: ClassVar[Any] = TrainingRecipe(
        "softmax",
        0.5,
        20,
        rounds=400,
        cohort=10,
        local_steps=5,
        weak=(0.1, 0.3, 1.0),
        strong=(0.05, 0.1, 0.3),
        fixed=(0.1, 0.3, 1.0),
    )

    senders: int = 100
    messages: int = 100
    words: int = 500
    classes: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.classes <= self.words:
            raise ConfigError(
                f"{self.classes} classes can't be guessed among {self.words} words; give at least 2 classes, and at "
                "least as many words"
            )
        if self.senders < 1 or self.messages < 10:
            raise ConfigError(
                f"{self.senders} senders with {self.messages} messages each are no federation; give at least 1 sender "
                "and at least 10 messages"
            )

    def load(self, root: Path, seed: int = 0) -> Clients:
        """Read the installed package; nothing is drawn at random, so the seed changes nothing.

        Raises:
            MissingDependencyError: if the package is not installed.
            DataError: if its file has another form, or there are fewer senders.
        """
        folder = packaged_folder("chitchat_dataset", "the chats come in a package; pip install 'holdfast[chitchat]'")
        written = read_chats(folder / "dataset.json")
        busiest = sorted(written, key=lambda sender: (-len(written[sender]), sender))[: self.senders]
        if len(busiest) < self.senders:
            raise DataError(f"{self.senders} senders were asked for and there are {len(busiest)}; give fewer senders")
        cut = [_cut(written[sender][: self.messages]) for sender in busiest]
        ranks = vocabulary((message for training, _, _ in cut for message in training), self.words)
        parts = [self._part([list(places(own[part], ranks, self.classes)) for own in cut]) for part in range(3)]
        return Clients(parts[0], parts[1], parts[2], classes=self.classes, names=tuple(busiest)).check()

    def _part(self, of_clients: list[list[Place]]) -> ClientPart:
        every = [place for of_client in of_clients for place in of_client]
        inputs = torch.from_numpy(features([before for before, _ in every], self.words))
        labels = torch.tensor([label for _, label in every], dtype=torch.int64)
        return ClientPart.of_counts(inputs, labels, torch.tensor([len(of_client) for of_client in of_clients]))


def read_chats(path: Path) -> dict[str, list[Message]]:
    """Every sender's messages in the order of their time stamps, as lower-case words; empty messages are left out.

    Raises:
        DataError: if the file can't be read or has another form.
    """
    try:
        chats = json.loads(path.read_text(encoding="utf-8"))
        stamped: dict[str, list[tuple[str, Message]]] = {}
        for chat in chats.values():
            for turn in chat["messages"]:
                for message in turn:
                    words = _WORD.findall(message["text"].lower())
                    if words:
                        stamped.setdefault(str(message["sender"]), []).append((str(message["timestamp"]), words))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is not the file of chitchat-dataset 0.9.0 ({error}); pip install chitchat-dataset==0.9.0 again"
        ) from error
    return {sender: [words for _, words in sorted(own, key=itemgetter(0))] for sender, own in stamped.items()}


def vocabulary(messages: Iterable[Message], count: int) -> dict[str, int]:
    """The `count` most frequent words and their ranks; words that are equally frequent are ranked by spelling."""
    counts = Counter(word for message in messages for word in message)
    if len(counts) < count:
        raise DataError(f"{count} words were asked for and the training messages have {len(counts)}; give fewer words")
    return {word: rank for rank, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word))[:count])}


def places(messages: Iterable[Message], ranks: Mapping[str, int], classes: int) -> Iterator[Place]:
    """The places at which one of the `classes` most frequent words stands; a word without a rank has ``len(ranks)``."""
    for message in messages:
        known = [ranks.get(word, len(ranks)) for word in message]
        for place, word in enumerate(known):
            if word < classes:
                yield known[:place], word


def features(before: list[list[int]], words: int) -> NDArray[np.float32]:
    """What a linear model sees of the words before a place, (places, 2 words + 1).

    The word right before it, one-hot (the column `words` where the message begins), and the share of each word among
    all before it. A word without a rank has no column and counts in the share.

    Example:
        >>> features([[], [0, 2, 1]], words=2).round(2).tolist()
        [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.33, 0.33]]
    """
    rows = np.zeros((len(before), 2 * words + 1), np.float32)
    for row, earlier in zip(rows, before, strict=True):
        if not earlier:
            row[words] = 1
            continue
        if earlier[-1] < words:
            row[earlier[-1]] = 1
        for word in earlier:
            if word < words:
                row[words + 1 + word] += 1 / len(earlier)
    return rows


def _cut(messages: list[Message]) -> tuple[list[Message], list[Message], list[Message]]:
    """Training, validation and test messages, in this order in time."""
    ends = round(_TRAINING * len(messages)), round((_TRAINING + _VALIDATION) * len(messages))
    return messages[: ends[0]], messages[ends[0] : ends[1]], messages[ends[1] :]
