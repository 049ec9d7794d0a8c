"""What is known of the groups of a data set, as the user gave it."""

from __future__ import annotations

from holdfast.auto.candidates import Knowledge
from holdfast.data.examples import Examples, Splits


def knowledge_of(splits: Splits) -> Knowledge:
    """Where groups are known; of the test set nothing is looked at.

    Groups known in training only help a method, but no choice can be judged by them: that is `none`.
    """
    if not _grouped(splits.validation):
        return "none"
    return "train" if _grouped(splits.train) else "validation"


def _grouped(examples: Examples) -> bool:
    """Whether there are disjoint groups, and they are not the classes by another name."""
    if examples.groups is None or examples.memberships is not None:
        return False
    pairs = set(zip(examples.labels.tolist(), examples.groups.tolist(), strict=True))
    return len(pairs) > len({label for label, _ in pairs})
