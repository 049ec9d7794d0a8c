"""A check: a name, limits with their reason, a remedy; given what was observed it answers ok, doubtful or failed.

Every method rests on an assumption (that the shortcut is learned first, that first mistakes are the minority). Each
states its assumptions as checks next to its own code: a `Check` and a pure function that measures and says the
sentence. `Policy.health` hands them to the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Verdict = Literal["ok", "doubtful", "failed"]
_ORDER: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: its name.
        verdict: ok, doubtful or failed.
        sentence: what was observed, a clause that can follow "because".
        remedy: what to do about it.
        value: the number that was judged.
        reason: why the limits are where they are.
    """

    check: str
    verdict: Verdict
    sentence: str
    remedy: str
    value: float
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; JSON has no infinity, so what is not finite is None."""
        return {**asdict(self), "value": self.value if math.isfinite(self.value) else None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        """Out of a stored mapping that may hold more.

        Raises:
            ValueError: if the verdict is none.
        """
        if stored["verdict"] not in _ORDER:
            raise ValueError(stored["verdict"])
        texts = {name: str(stored[name]) for name in ("check", "sentence", "remedy", "reason")}
        value = math.nan if stored["value"] is None else float(stored["value"])
        return cls(verdict=stored["verdict"], value=value, **texts)


@dataclass(frozen=True)
class Check:
    """An assumption with its limits.

    Attributes:
        name: of the check.
        doubtful: values beyond this are doubtful.
        failed: values beyond this mean that the assumption does not hold; None where the check only doubts.
        bad: which side of the limits is bad.
        reason: why the limits are where they are.
        remedy: what to do, in the imperative.
    """

    name: str
    doubtful: float
    failed: float | None
    bad: Literal["above", "below"]
    reason: str
    remedy: str

    def finding(self, value: float, sentence: str) -> Finding:
        """Judge a value; one that is no number is doubtful."""
        return Finding(self.name, self.verdict(value), sentence, self.remedy, value, self.reason)

    def verdict(self, value: float) -> Verdict:
        """Where the value lies; on a limit is still good."""
        sign = 1 if self.bad == "above" else -1
        if self.failed is not None and sign * value > sign * self.failed:
            return "failed"
        return "ok" if sign * value <= sign * self.doubtful else "doubtful"


@dataclass(frozen=True)
class Health:
    """All findings of a run.

    Attributes:
        findings: worst first, else in the order of the checks.
    """

    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Health:
        """The findings in order."""
        return cls(tuple(sorted(findings, key=lambda finding: -_ORDER.index(finding.verdict))))

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings'."""
        return self.findings[0].verdict if self.findings else "ok"

    @property
    def concerns(self) -> tuple[Finding, ...]:
        """What is not ok."""
        return tuple(finding for finding in self.findings if finding.verdict != "ok")

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        if self.verdict == "ok":
            return f"{self.judgement} ({len(self.findings)} check{'' if len(self.findings) == 1 else 's'})."
        because = "; ".join(finding.sentence for finding in self.concerns if finding.verdict == self.verdict)
        return f"{self.judgement}, because {because}."

    @property
    def judgement(self) -> str:
        """The verdict in a clause, for places that list the concerns themselves."""
        return {
            "ok": "No problem found",
            "doubtful": "This result is doubtful",
            "failed": "This result should not be used",
        }[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """As ``results.json`` holds it."""
        return {"verdict": self.verdict, "findings": [finding.to_json() for finding in self.findings]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Health:
        """What `to_json` gave."""
        return cls.of(Finding.from_json(finding) for finding in stored["findings"])
