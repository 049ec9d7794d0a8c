"""How one group fares, with an interval that is honest for small groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.primitives.proportions import wilson


@dataclass(frozen=True)
class GroupScore:
    """How one group fares.

    Attributes:
        name: the group.
        count: examples of it that were judged.
        correct: how many of them were right.
        train_count: examples of it in the training set, where that is known.
    """

    name: str
    count: int
    correct: int
    train_count: int | None = None

    @property
    def accuracy(self) -> float | None:
        """Share that was right; None for a group without examples."""
        return self.correct / self.count if self.count else None

    @property
    def low(self) -> float | None:
        """Lower end of Wilson's 95% interval."""
        return wilson(self.correct, self.count)[0] if self.count else None

    @property
    def high(self) -> float | None:
        """Upper end of Wilson's 95% interval."""
        return wilson(self.correct, self.count)[1] if self.count else None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> GroupScore:
        """What `to_json` gave.

        Raises:
            ValueError: if its counts are none.
        """
        count, correct, trained = (stored[key] for key in ("count", "correct", "train_count"))
        numbers = [number for number in (count, correct, trained) if number is not None]
        if not all(type(number) is int and 0 <= number < 2**53 for number in numbers) or correct > count:
            raise ValueError(f"{correct!r:.40} of {count!r:.40} examples are right and {trained!r:.40} are in training")
        return cls(str(stored["name"]), count, correct, trained)

    def to_json(self) -> dict[str, Any]:
        """The score as plain values, the derived ones included."""
        return {
            "name": self.name,
            "count": self.count,
            "correct": self.correct,
            "accuracy": self.accuracy,
            "low": self.low,
            "high": self.high,
            "train_count": self.train_count,
        }


def lowest(scores: Sequence[GroupScore]) -> GroupScore:
    """The score with the lowest accuracy, the first of equals; groups without examples don't count."""
    return min((score for score in scores if score.count), key=accuracy_of)


def accuracy_of(score: GroupScore) -> float:
    """Accuracy of a group that is known to have examples."""
    assert score.accuracy is not None, f"group {score.name} has no examples"
    return score.accuracy
