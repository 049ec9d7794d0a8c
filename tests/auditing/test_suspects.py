"""Suspects: who accuses them, in which order, and whether they lie where a rare group would."""

import pytest
import torch

from holdfast.auditing.suspects import accused, small_clusters
from holdfast.auditing.wrong_labels import LabelQuality
from holdfast.data.examples import Examples
from holdfast.errors import HoldfastWarning
from holdfast.poisoning.suspects import Suspect
from holdfast.spurious.group_inference.discovery import GroupAudit, describe_clusters
from holdfast.spurious.group_inference.separation import separate


def test_each_suspect_says_who_accuses_it_and_the_worst_label_comes_first():
    train = Examples.of(torch.zeros(5, 2), [0, 1, 0, 1, 0], ids=[50, 51, 52, 53, 54])
    quality = LabelQuality(
        torch.tensor([0.9, 0.1, 0.4, 0.05, 0.8]),
        torch.tensor([0, 0, 0, 0, 0]),
        torch.tensor([False, True, False, True, False]),
    )
    alone = [Suspect(51, 1, 1, 3, 1, 2.0, 0), Suspect(52, 2, 0, 4, 1, 1.0, 0)]
    found = accused(alone, quality, torch.tensor([False, False, True, False, False]), train)
    assert [(one.id, one.speaks, one.minority) for one in found] == [
        (53, "self-confidence", False),
        (51, "both", False),
        (52, "isolation", True),
    ]
    assert found[1].isolated.epoch == 3


def _audit(minority_inputs):
    """Two classes of 300; 30 of class 0 are taken for class 1 by a young network."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) // 300
    odd = torch.arange(600) < 30
    says = torch.where(odd, 1, labels).double()
    points = (8 * says - 4 + 0.2 * torch.randn(600, generator=generator, dtype=torch.float64)).sigmoid()
    probabilities = torch.stack([1 - points, points], 1).float()
    inputs = torch.randn(600, 8, generator=generator)
    inputs[:, 0] += 6 * labels
    inputs[odd, 0] += minority_inputs
    with pytest.warns(HoldfastWarning, match="the silhouette of class 1"):  # which has no minority
        partition = separate(probabilities, labels, k_max=2)
    return GroupAudit(partition, describe_clusters(probabilities, partition), probabilities), inputs, odd


def test_a_small_cluster_with_a_look_of_its_own_is_marked_and_one_of_wrong_labels_is_not():
    audit, inputs, odd = _audit(minority_inputs=0)
    assert torch.equal(small_clusters(audit, [inputs], ("a", "b")) & (audit.partition.labels == 0), odd)
    audit, inputs, odd = _audit(minority_inputs=6)
    assert not bool((small_clusters(audit, [inputs], ("a", "b")) & odd).any())
