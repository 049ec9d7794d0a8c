"""Runs the checks while training goes on and at its end, and remembers what was already said."""

from __future__ import annotations

from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.health.check import Finding, Health, Verdict
from holdfast.training.health.general import above_chance, above_majority, chosen_by, of_worst_group
from holdfast.training.health.observed import Observed
from holdfast.training.policy import Chain


class HealthWatch:
    """The checks of one run.

    Args:
        policy: whose assumptions are checked.
    """

    def __init__(self, policy: Chain) -> None:
        self._policy = policy
        self._said: dict[str, Verdict] = {}

    def news(self, observed: Observed) -> list[Finding]:
        """Findings whose verdict is another than when last asked; before, all are taken for ok."""
        found = self._policy.health(observed)
        fresh = [finding for finding in found if self._said.get(finding.check, "ok") != finding.verdict]
        self._said = {finding.check: finding.verdict for finding in found}
        return fresh

    def result(self, observed: Observed, reference: GroupReport | None = None) -> Health:
        """All findings, once training is over.

        Args:
            observed: with what came out.
            reference: how plain training fares on the same test set, where that is known.
        """
        assert observed.outcome is not None
        test, chosen = observed.outcome.test, observed.outcome.validation
        needs = any(member.needs_groups_of is not None for member in self._policy.members)
        return Health.of(
            [
                above_chance(test),
                above_majority(test),
                chosen_by(observed.outcome.select_by, chosen, needs_groups=needs),
                *of_worst_group(test, reference, aims=self._policy.promises_worst_group),
                *self._policy.health(observed),
            ]
        )
