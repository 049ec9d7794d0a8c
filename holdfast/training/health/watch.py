"""Runs the checks while training goes on and at its end, and remembers what was already said."""

from __future__ import annotations

from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.health.check import Finding, Health, Verdict
from holdfast.training.health.general import above_chance, above_majority, against_reference, chosen_by, worst_group
from holdfast.training.health.observed import Observed
from holdfast.training.policy import Chain


class HealthWatch:
    """The checks of one run.

    Args:
        policy: whose assumptions are checked.
        reference: how plain training fares on the same test set, where that is known.
    """

    def __init__(self, policy: Chain, reference: GroupReport | None = None) -> None:
        self._policy, self._reference = policy, reference
        self._said: dict[str, Verdict] = {}

    def news(self, observed: Observed) -> list[Finding]:
        """Findings whose verdict is another than when last asked; before, all are taken for ok."""
        found = self._policy.health(observed)
        fresh = [finding for finding in found if self._said.get(finding.check, "ok") != finding.verdict]
        self._said = {finding.check: finding.verdict for finding in found}
        return fresh

    def result(self, observed: Observed) -> Health:
        """All findings, once training is over."""
        assert observed.outcome is not None
        test = observed.outcome.test
        general = [above_chance(test), above_majority(test)]
        chosen = observed.outcome.validation
        needs = any(member.needs_groups_of is not None for member in self._policy.members)
        general.append(chosen_by(observed.outcome.select_by, chosen, needs_groups=needs))
        if self._policy.promises_worst_group and test.grouping != "classes":
            general.append(worst_group(test))
        if self._reference is not None:
            general.append(against_reference(test, self._reference))
        return Health.of([*general, *self._policy.health(observed)])
