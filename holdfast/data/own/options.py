"""What a user may say about data of his own; each field is an option of every command that reads such data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.errors import ConfigError

#: What a data set's name on the Hugging Face hub is given with: ``hf:NAME``.
HUB = "hf:"


@dataclass(frozen=True)
class ReadingOptions:
    """Which column says what, how the data is split, and how inputs are made of it.

    Columns that are not named are guessed from their names and types, and the guess is printed.

    Attributes:
        label: the column with the class; words or whole numbers.
        attribute: columns with what may be a shortcut or a sensitive trait; groups are the class with all of them. A
            numeric column is cut at its quantiles by NAME:K. A column of lists makes groups that overlap. `none` for
            none.
        text: the column with the texts that are the inputs.
        image: the column with the images that are the inputs, as paths below the folder.
        features: the columns that are the inputs of a table; by default all that have no other role.
        client: the column that names each row's client, for a federation.
        split: the column that says train, val or test; none to have the split made.
        time: the column to split by: the oldest rows are for training, the newest for the test.
        id: the column with a name for each row; its number by default.
        validation_share: share of the rows for validation, where the split is made.
        test_share: share of the rows for the test, where the split is made.
        split_seed: decides the split that is made.
        image_size: side of the square that images are resized to; by default their own if they are small, else 224.
        image_workers: threads that decode images.
        in_memory: hold all decoded images in memory: yes, no, or where they take up to a quarter of what is free.
        tokenizer: a name on the Hugging Face hub, a local folder, or hashing, which needs neither.
        max_tokens: texts are cut to this many tokens.
    """

    label: str | None = None
    attribute: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    features: tuple[str, ...] = ()
    client: str | None = None
    split: str | None = None
    time: str | None = None
    id: str | None = None
    validation_share: float = 0.15
    test_share: float = 0.15
    split_seed: int = 0
    image_size: int | None = None
    image_workers: int = 2
    in_memory: Literal["auto", "yes", "no"] = "auto"
    tokenizer: str = "hashing"
    max_tokens: int = 256

    def __post_init__(self) -> None:
        for name in ("validation_share", "test_share"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a share between 0 and 1")
        if self.validation_share + self.test_share >= 1:
            raise ConfigError(
                f"validation_share {self.validation_share} and test_share {self.test_share} leave nothing to train on; "
                "give less to them"
            )
        for name, least in (("image_workers", 0), ("max_tokens", 1), ("image_size", 1), ("split_seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}; give at least {least}")
        for name, most in (("image_size", 4096), ("max_tokens", 1 << 20)):
            value = getattr(self, name)
            if value is not None and value > most:
                raise ConfigError(f"{name} is {value}; give at most {most}")
        if self.split is not None and self.time is not None:
            raise ConfigError(
                f"the split is to come from {self.split!r} and from the time in {self.time!r}; give one of them"
            )
        if (self.text, self.image, bool(self.features)).count(None) + (not self.features) < 2:
            raise ConfigError("the inputs are a text, an image or features of a table; name one of the three")
