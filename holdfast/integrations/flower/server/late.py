"""Answers that come when their round is over.

They are left out, or, with ``late="weigh"``, kept until their client is drawn again, in whose place they then count; so
a round never has more updates than its cohort, nor two of one client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.integrations.flower.server.ledger import Ledger
from holdfast.integrations.flower.server.questions import Question, Round
from holdfast.integrations.flower.settings import FlowerSettings


@dataclass
class LateAnswers:
    """The answers to earlier rounds that may still count.

    Attributes:
        settings: what becomes of them, and after how many rounds they are too old.
        ledger: of those that are left out.
        stale: how many rounds late each answer was that counts in this round.
    """

    settings: FlowerSettings
    ledger: Ledger
    stale: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def count_drawn(self, current: Round) -> None:
        """Begin a round: let answers to earlier ones count for clients that are drawn again."""
        self.stale = {}
        if current.question.trains:
            for client in sorted(current.wanted & self._kept.keys()):
                self._count(current, client)

    def take(self, question: Question, good: Mapping[int, Any], current: Round | None) -> None:
        """An answer to a round that is over: kept until it can count, or left out with a line."""
        if self.settings.late == "drop" or not question.trains:
            if good:
                why = f"the answer to round {question.number + 1} came after the round was closed and is left out"
                self.ledger.fault(tuple(sorted(good)), "late", why)
            return
        for client, value in good.items():
            self._kept[client] = (question.number, value)
            if current is not None and current.question.trains and client in current.waiting:
                self._count(current, client)

    def _count(self, current: Round, client: int) -> None:
        number, value = self._kept.pop(client)
        late = current.question.number - number
        if 0 < late <= self.settings.late_rounds:
            current.got[client], self.stale[client] = value, late
        else:
            self.ledger.fault(
                (client,), "late", f"the answer to round {number + 1} is {late} rounds late and is left out"
            )
