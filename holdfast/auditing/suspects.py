"""Suspects with two witnesses: gradients that stand alone while a network learns, and a label that other models doubt.

Isolation (EPIC) finds poisons before they take effect; self-confidence by cross-validation finds wrong labels. Each has
clean examples among its suspects, and rare groups more than others, so a suspect says who accuses it and whether it
lies in a small cluster of its class, where a minority would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.auditing.own_look import own_look
from holdfast.auditing.wrong_labels import LabelQuality
from holdfast.data.examples import Examples
from holdfast.poisoning.suspects import Suspect
from holdfast.spurious.group_inference.discovery import GroupAudit
from holdfast.spurious.group_inference.health import MINORITY_SHARE, SEPARATION

Speaks = Literal["both", "isolation", "self-confidence"]


@dataclass(frozen=True)
class Accused:
    """An example that one of the two finds suspicious.

    Attributes:
        id: of the example.
        position: in the training set.
        label: its class.
        isolated: how it stood alone; None where it didn't.
        confidence: probability of its label by a model that did not learn from it.
        rather: the most probable class by that model.
        wrong: whether confident learning takes its label for wrong.
        minority: whether it lies in a small cluster of its class.
    """

    id: int
    position: int
    label: int
    isolated: Suspect | None
    confidence: float
    rather: int
    wrong: bool
    minority: bool

    @property
    def speaks(self) -> Speaks:
        """Who accuses it."""
        if self.isolated is None:
            return "self-confidence"
        return "both" if self.wrong else "isolation"


def accused(isolated: Sequence[Suspect], quality: LabelQuality, minority: Tensor, examples: Examples) -> list[Accused]:
    """All that stood alone or whose label is likely wrong, by rising self-confidence.

    Args:
        isolated: those that stood alone.
        quality: what cross-validation says of the labels.
        minority: whether an example lies in a small cluster of its class, bool of shape (n,).
        examples: the training set.
    """
    alone = {one.position: one for one in isolated}
    suspicious = quality.wrong.clone()
    suspicious[list(alone)] = True
    order = quality.order
    return [
        Accused(
            int(examples.ids[position]),
            position,
            int(examples.labels[position]),
            alone.get(position),
            float(quality.confidence[position]),
            int(quality.suggested[position]),
            bool(quality.wrong[position]),
            bool(minority[position]),
        )
        for position in order[suspicious[order]].tolist()
    ]


def small_clusters(audit: GroupAudit, vectors: Sequence[Tensor], names: Sequence[str]) -> Tensor:
    """Which examples lie in a small, separated cluster of their class that is no cluster of wrong labels.

    Args:
        audit: the clusters that a young network makes.
        vectors: what examples look like, see `own_look`.
        names: of the classes.

    Returns:
        bool of shape (n,), in the order of the training set.
    """
    partition, predictions = audit.partition, audit.probabilities.argmax(1)
    marked = torch.zeros(len(partition.labels), dtype=torch.bool)
    for one in audit.clusters:
        separated = partition.classes[one.label].silhouette
        if one.cluster == 0 or one.share > MINORITY_SHARE.doubtful or separated is None:
            continue
        if SEPARATION.verdict(separated.value) != "ok":
            continue
        look = own_look(one, partition, predictions, vectors, names) if one.stands_out else None
        if look is None or look.verdict == "ok":
            marked |= (partition.labels == one.label) & (partition.clusters == one.cluster)
    return marked
