"""SPARE's discovery mode: what is in the clusters that a young network makes of each class, for a person to look at.

Yang et al. (AISTATS 2024, https://arxiv.org/abs/2305.18761), the study of Restricted ImageNet (Section 5.5.3 of the
dissertation, https://escholarship.org/uc/item/0399v1qw). Nobody has labelled groups there; the clusters of each class
are ranked by how many of their examples are misclassified and for which single class they are taken, and a look at
their members shows the shortcut: frogs on green leaves are taken for insects. Use it before you train in earnest, to
learn whether there is a shortcut at all; `holdfast audit groups` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.spurious.group_inference.separation import separate
from holdfast.spurious.group_inference.spare import Output, harvest
from holdfast.streams import torch_stream
from holdfast.training.events import Listener
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plain import plain_epochs
from holdfast.training.settings import Training

_BINS = 20
_MOST = 0.5


@dataclass(frozen=True)
class Cluster:
    """One cluster of one class.

    Attributes:
        label: the class.
        cluster: its number within the class, from 0 by decreasing size.
        size: how many examples it has.
        class_size: how many the class has.
        predicted: how many of its examples the model takes for each class.
        histogram: how many have a probability of the true class in each of 20 equal intervals from 0 to 1.
        confidence: mean probability of the true class.
        draw_share: share of the class's draws that SPARE would give it.
        weight: how often SPARE would draw one of its examples, in multiples of plain shuffling.
        typical: positions of the examples nearest to its centre, nearest first.
        others: positions of some other examples, drawn at random.
    """

    label: int
    cluster: int
    size: int
    class_size: int
    predicted: tuple[int, ...]
    histogram: tuple[int, ...]
    confidence: float
    draw_share: float
    weight: float
    typical: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def share(self) -> float:
        """Share of the class that is in it."""
        return self.size / self.class_size

    @property
    def accuracy(self) -> float:
        """Share of its examples that the model gets right."""
        return self.predicted[self.label] / self.size

    @property
    def misclassified(self) -> float:
        """Share of its examples that the model gets wrong."""
        return (self.size - self.predicted[self.label]) / self.size

    @property
    def mistaken_for(self) -> int | None:
        """The wrong class that is predicted most often, the first of equals; None where all are right."""
        wrong = [0 if label == self.label else count for label, count in enumerate(self.predicted)]
        return wrong.index(max(wrong)) if any(wrong) else None

    @property
    def mistaken(self) -> float:
        """Share of its examples that are taken for that class."""
        return 0.0 if self.mistaken_for is None else self.predicted[self.mistaken_for] / self.size

    @property
    def stands_out(self) -> bool:
        """Whether at least half of its examples are taken for one and the same other class."""
        return self.mistaken >= _MOST


@dataclass(frozen=True, eq=False)
class GroupAudit:
    """The clusters of every class and what the model makes of them.

    Attributes:
        partition: the clusters, by example id.
        clusters: a record per cluster, by class and number.
        probabilities: softmax outputs of the model, float32 of shape (n, classes), in the order of the partition.
        epoch: epochs of training before the look; None where that isn't known.
    """

    partition: ClusterPartition
    clusters: tuple[Cluster, ...]
    probabilities: Tensor
    epoch: int | None = None

    def of_class(self, label: int) -> tuple[Cluster, ...]:
        """The clusters of one class, the largest first."""
        return tuple(cluster for cluster in self.clusters if cluster.label == label)

    @property
    def suspects(self) -> tuple[Cluster, ...]:
        """The clusters that stand out, most suspicious first."""
        return tuple(cluster for cluster in rank(self.clusters) if cluster.stands_out)


def rank(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Most suspicious first: by the share misclassified, then by the share taken for a single class, then by size.

    Shares count in whole percent, so that one example more or less doesn't put a handful before hundreds.
    """
    return sorted(clusters, key=lambda one: (-round(one.misclassified, 2), -round(one.mistaken, 2), -one.size))


def describe_clusters(
    probabilities: Tensor, partition: ClusterPartition, *, outputs: Tensor | None = None, shown: int = 8, seed: int = 0
) -> tuple[Cluster, ...]:
    """What the model makes of each cluster, and which of its members to look at.

    Args:
        probabilities: softmax outputs, float of shape (n, classes), in the order of the partition.
        partition: the clusters, with the true classes.
        outputs: what was clustered, float of shape (n, d), where it wasn't the probabilities.
        shown: how many typical members to name, and how many drawn at random among the others.
        seed: names the random streams.

    Returns:
        A record per cluster, by class and number.

    Raises:
        DataError: if shapes disagree.
    """
    space = probabilities if outputs is None else outputs
    n = len(partition.labels)
    if probabilities.ndim != 2 or len(probabilities) != n or len(space) != n:
        raise DataError(
            f"the partition has {n} examples, the probabilities have shape {tuple(probabilities.shape)} and the "
            f"clustered outputs {tuple(space.shape)}; give a row per example"
        )
    predictions = probabilities.argmax(1)
    confidence = probabilities[torch.arange(n), partition.labels].double()
    class_sizes = torch.bincount(partition.labels)
    class_mass = torch.bincount(partition.labels, weights=partition.p)
    by_id = partition.ids.argsort()
    by_group = by_id[partition.groups[by_id].argsort(stable=True)]
    descriptions = []
    for members in torch.split(by_group, torch.bincount(partition.groups).tolist()):
        label, number = int(partition.labels[members[0]]), int(partition.clusters[members[0]])
        typical, others = _to_show(space[members], shown, torch_stream(seed, "audit", label, number))
        bins = (confidence[members] * _BINS).long().clamp(max=_BINS - 1)
        descriptions.append(
            Cluster(
                label=label,
                cluster=number,
                size=len(members),
                class_size=int(class_sizes[label]),
                predicted=tuple(torch.bincount(predictions[members], minlength=probabilities.shape[1]).tolist()),
                histogram=tuple(torch.bincount(bins, minlength=_BINS).tolist()),
                confidence=float(confidence[members].mean()),
                draw_share=float(partition.p[members].sum() / class_mass[label]),
                weight=float(partition.p[members].mean() * n),
                typical=tuple(members[typical].tolist()),
                others=tuple(members[others].tolist()),
            )
        )
    return tuple(descriptions)


def audit_groups(
    model: nn.Module,
    examples: Examples,
    *,
    output: Output = "softmax",
    k_max: int = 5,
    shown: int = 8,
    seed: int = 0,
    head: str | None = None,
) -> GroupAudit:
    """Cluster what the model makes of each class, as SPARE would, and describe the clusters.

    Args:
        model: best an epoch or two old: a network that was trained to the end has learned its exceptions by heart.
        examples: the training set; its groups and attributes aren't looked at.
        output: what is clustered, see `holdfast.spurious.Spare`.
        k_max: try 2 to this many clusters in each class.
        shown: how many members of each cluster to name, see `describe_clusters`.
        seed: names the random streams.
        head: name of the model's head where it can't be found; only features need it.

    Returns:
        The clusters.
    """
    model_outputs = ModelOutputs(model, examples, features=output == "features", head=head)
    outputs = harvest(model_outputs, torch.arange(len(examples)), output)
    separated = separate(outputs, examples.labels, k_max=k_max, seed=seed, ids=examples.ids)
    partition = replace(separated, about={**separated.about, "output": output})
    probabilities = model_outputs.probabilities()
    clusters = describe_clusters(probabilities, partition, outputs=outputs, shown=shown, seed=seed)
    return GroupAudit(partition, clusters, probabilities)


def discover(
    model: nn.Module,
    train: Examples,
    settings: Training | None = None,
    *,
    epochs: Sequence[int] = tuple(range(2, 11)),
    output: Output = "softmax",
    k_max: int = 5,
    shown: int = 8,
    head: str | None = None,
    listeners: Sequence[Listener] = (),
) -> Iterator[GroupAudit]:
    """Train plainly, without augmentation, and audit the groups after each of some early epochs.

    It is SPARE's first stage: with the same settings, seed and epoch, `Spare` finds the same clusters.

    Args:
        model: trained in place; at each audit it is the one that was audited, to be saved or explained.
        train: the training set.
        settings: how fast; its `epochs` are those that the learning rate's schedule spans, trained or not.
        epochs: audit after these many epochs; training ends with the last.
        output: what is clustered, see `holdfast.spurious.Spare`.
        k_max: try 2 to this many clusters in each class.
        shown: how many members of each cluster to name.
        head: name of the model's head where it can't be found; only features need it.
        listeners: called with a ``start`` event and with a ``step`` event after every step.

    Yields:
        The audits, in the order of the epochs.

    Raises:
        ConfigError: if no epoch is given, or one before the first.
    """
    chosen = settings or Training()
    if not epochs or min(epochs) < 1:
        raise ConfigError(f"the epochs to audit after are {list(epochs)}; give at least one, from 1")
    for done in plain_epochs(model, train, chosen, max(epochs), listeners=listeners):
        if done in epochs:
            audit = audit_groups(model, train, output=output, k_max=k_max, shown=shown, seed=chosen.seed, head=head)
            about = {**audit.partition.about, "infer_epoch": done}
            yield replace(audit, partition=replace(audit.partition, about=about), epoch=done)


def _to_show(points: Tensor, shown: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of `points` nearest to their mean, nearest first, and a random choice of the others."""
    order = (points - points.mean(0)).norm(dim=1).argsort(stable=True)
    rest = order[shown:].sort().values
    return order[:shown], rest[torch.randperm(len(rest), generator=generator)[:shown]]
