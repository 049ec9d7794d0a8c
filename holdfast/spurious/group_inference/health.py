"""Whether inferred groups can be what they are taken for: minorities inside the classes.

Clusters are judged by how well they separate, error sets by what the first stage has learned, and both by the true
attributes where these are known (they are looked at for judging only).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.spurious.group_inference.quality import judge_groups
from holdfast.training.health.check import Check, Finding

SEPARATION = Check(
    "separation of clusters",
    0.7,
    0.6,
    "below",
    "k-means on points of a line without any gap has a silhouette of about .6, and under .7 a majority was often split "
    "in two",
    "infer at another epoch (infer_epoch), or look at the clusters with `holdfast audit groups`",
)
MINORITY_SHARE = Check(
    "share of inferred minorities",
    0.4,
    None,
    "above",
    "halves of nearly equal size are more often one majority cut in two than a majority and its minority",
    "infer at another epoch (infer_epoch), or look at the clusters with `holdfast audit groups`",
)
PURITY = Check(
    "purity of inferred minorities",
    2.0,
    1.2,
    "below",
    "examples drawn at random hold as much of the true minority as the class does, which is 1",
    "infer at another epoch (infer_epoch), or use the attributes that are known: --method group-balanced",
)
RECALL = Check(
    "recall of minorities",
    0.5,
    0.2,
    "below",
    "a minority of which less than half is found is mostly trained as majority",
    "infer at another epoch (infer_epoch), or use the attributes that are known: --method group-balanced",
)
FIRST_STAGE = Check(
    "skill of the first stage",
    0.6,
    0.4,
    "below",
    "first mistakes mean something only of a model that has learned; the usual scale of agreement beyond guessing "
    "calls .4 moderate and .6 substantial",
    "train the first stage longer (--jtt.infer-epoch), so that what is easy is right",
)
ERROR_COUNT = Check(
    "size of the error set",
    10,
    None,
    "below",
    "fewer examples, repeated dozens of times, are memorised",
    "stop the first stage earlier, or regularise it more (first_weight_decay)",
)


EPOCH_LENGTH = Check(
    "length of an epoch",
    10,
    None,
    "above",
    "an error set of a tenth, repeated fifty times, makes an epoch six times as long; beyond ten times, computation "
    "goes into few examples, and plain training could have it instead",
    "lower lambda_up, or train the first stage longer (--jtt.infer-epoch)",
)
EPOCH = Check(
    "epoch of inference",
    1,
    None,
    "below",
    "a curve of silhouettes that is highest at its end may rise further: the shortcut may not be learned yet",
    "try later epochs (--spare.latest), or look at the clusters with `holdfast audit groups --epochs`",
)
_FEW = 10  # examples: fewer are odd ones, and no group


def separation(partition: ClusterPartition) -> list[Finding]:
    """How well the clusters stand apart, and how large the inferred minorities are.

    The first is judged by the best class: a class that has no minority need not separate. One cluster counts as 0.
    """
    scores = {
        label: one.silhouette.value if one.silhouette is not None else 0.0 for label, one in partition.classes.items()
    }
    best = max(scores, key=lambda label: scores[label])
    shares = {c: float((partition.clusters[partition.labels == c] > 0).double().mean()) for c in partition.classes}
    split = max(shares, key=lambda label: shares[label])
    return [
        SEPARATION.finding(
            scores[best],
            f"the clusters that were inferred separate with a silhouette of {scores[best]:.2f} at best (class {best})",
        ),
        MINORITY_SHARE.finding(
            shares[split], f"{100 * shares[split]:.0f} % of class {split} were taken for its minorities"
        ),
    ]


def plausible_silhouette(partition: ClusterPartition) -> float:
    """The mean silhouette over classes; 0 for a class without plausible minorities: 10 examples and up to 40 %."""
    scores = []
    for label, one in partition.classes.items():
        small = partition.clusters[partition.labels == label] > 0
        plausible = int(small.sum()) >= _FEW and float(small.double().mean()) <= MINORITY_SHARE.doubtful
        scores.append(one.silhouette.value if plausible and one.silhouette is not None else 0.0)
    return sum(scores) / len(scores)


def epoch_of_inference(curve: Mapping[int, float], chosen: int, enough: float) -> Finding:
    """How far from the end of its curve the epoch lies that was chosen.

    Args:
        curve: mean silhouette of plausible clusters by epoch.
        chosen: the epoch.
        enough: silhouette at which clusters are well separated, wherever the epoch lies.
    """
    left = max(curve) - chosen if curve[chosen] < enough else len(curve)
    listed = ", ".join(f"{curve[epoch]:.2f}" for epoch in sorted(curve))
    return EPOCH.finding(
        left,
        f"groups were inferred after epoch {chosen} of {max(curve)} that were tried; their mean silhouettes: {listed}",
    )


def skill(wrong: Tensor, labels: Tensor) -> float:
    """How much of what always the same class gets wrong a model gets right: 1 for all, 0 for guessing.

    Args:
        wrong: bool of shape (n,).
        labels: int64 of shape (n,).
    """
    guessing = 1 - float(torch.bincount(labels).max()) / len(labels)
    return 1 - float(wrong.double().mean()) / guessing if guessing > 0 else 0.0


def length_of_epochs(factor: float) -> Finding:
    """How many times longer an epoch is than one of plain training."""
    return EPOCH_LENGTH.finding(factor, f"an epoch is {factor:.1f} times as long as that of plain training")


def error_set(wrong: Tensor, labels: Tensor) -> list[Finding]:
    """What a set of first mistakes says about the model that made them.

    Args:
        wrong: bool of shape (n,).
        labels: int64 of shape (n,).
    """
    guessing = 1 - float(torch.bincount(labels).max()) / len(labels)
    share, count = float(wrong.double().mean()), int(wrong.sum())
    size = f"{count:,} of {len(wrong):,} examples"
    return [
        FIRST_STAGE.finding(
            skill(wrong, labels),
            f"the first stage got {size} wrong, {100 * share:.0f} % where always the same class has "
            f"{100 * guessing:.0f} %",
        ),
        ERROR_COUNT.finding(count, f"the error set has {size}"),
    ]


def minorities(groups: Tensor, labels: Tensor, attributes: Tensor) -> list[Finding]:
    """Inferred minorities against the true ones; nothing where no class has a minority.

    Args:
        groups: inferred, int64 of shape (n,).
        labels: int64 of shape (n,).
        attributes: true, int64 of shape (n,).
    """
    judged = judge_groups(groups, labels, attributes).classes.values()
    found = sum(one.true_positives for one in judged)
    inferred = found + sum(one.false_positives for one in judged)
    true = found + sum(one.false_negatives for one in judged)
    if true == 0:
        return []
    precision, recall, base = found / max(inferred, 1), found / true, true / len(labels)
    of = f"of the {inferred:,} examples taken for minorities {100 * precision:.0f} % are"
    return [
        PURITY.finding(precision / base, f"{of}, where {100 * base:.0f} % of all examples are"),
        RECALL.finding(recall, f"{100 * recall:.0f} % of the true minorities' {true:,} examples were found"),
    ]
