"""GEORGE: train plainly to the end, cluster the features of each class into subclasses, then GroupDRO on those.

Sohoni, Dunnmon, Angus, Gu and Ré, "No Subclass Left Behind" (NeurIPS 2020, https://arxiv.org/abs/2011.12945); a
baseline of SPARE. Examples of one class that a network treats differently lie apart in its features, so their clusters
stand in for unlabelled groups. How features are reduced first decides what is found. The published choices are UMAP in
two dimensions for MNIST, the one-dimensional `loss` for Waterbirds and none for CelebA, with 2 to 3 as GroupDRO's size
adjustment. It needs no group labels and costs a second full training; use it where groups are more than a shortcut that
is learned first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import ConfigError, MissingDependencyError, nearest
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.spurious.group_inference.subclasses import Clustering, subclasses
from holdfast.spurious.objectives.group_dro import GroupDroLoss
from holdfast.spurious.reweighting.balancing import balance_weights
from holdfast.streams import derive_seed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining

Reduction = Literal["none", "loss", "pca", "umap"]


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """How sure the model is of each example's class: the logarithm of p_y / (1 - p_y).

    With two classes it is, up to scale and shift, the component of the features that is orthogonal to the decision
    boundary, which the paper calls hardness; and it is defined for more classes too.

    Args:
        logits: float of shape (n, classes).
        labels: class of each example, int64 of shape (n,).

    Returns:
        Shape (n, 1); the loss is softplus of minus this.
    """
    own = labels[:, None]
    return logits.gather(1, own) - logits.scatter(1, own, -torch.inf).logsumexp(1, keepdim=True)


def principal_components(features: Tensor, components: int) -> Tensor:
    """Coordinates along the directions of largest variance.

    Args:
        features: float of shape (n, d).
        components: how many directions, at most d.

    Returns:
        float64 of shape (n, components), by decreasing variance.
    """
    centred = features.to(torch.float64)
    centred = centred - centred.mean(0)
    directions: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return centred @ directions[:, -components:].flip(1)


def umap_embedding(features: Tensor, components: int, seed: int) -> Tensor:
    """The features in few dimensions with their neighbourhoods kept, by the package umap-learn.

    Args:
        features: float of shape (n, d).
        components: dimensions of the result.
        seed: names the random stream.

    Returns:
        float32 of shape (n, components).

    Raises:
        MissingDependencyError: if the package is not there.
    """
    try:
        import umap  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "george reduces features with umap-learn, which is not installed; pip install 'holdfast[umap]', or set "
            "reduce to pca"
        ) from error
    model: Any = umap.UMAP(
        n_components=components, n_neighbors=10, min_dist=0.0, random_state=derive_seed(seed, "umap") % 2**32
    )
    return torch.as_tensor(model.fit_transform(features.numpy()))


@dataclass(kw_only=True)
class George(GroupInference):
    """Train plainly to the end, cluster the features of each class, then train with GroupDRO on the clusters.

    Attributes:
        infer_epoch: epochs of plain training before the clustering, on top of the budget; 0 for as many as the budget.
        reduce: what is clustered: features as they are (`none`), the one-dimensional log-odds of the class (`loss`),
            principal components (`pca`) or a UMAP embedding (`umap`).
        components: dimensions of `pca` and `umap`.
        clustering: Gaussian mixture (`gmm`) or `kmeans`.
        k_max: try 2 to this many clusters in each class.
        overcluster: split every cluster further into this many parts and keep those that are better separated and
            harder; 1 doesn't, the released code takes 5.
        eta_q: step size of GroupDRO's weights; 0 keeps them uniform.
        adjustment: C of GroupDRO's generalisation adjustment C / sqrt(group size).
    """

    name: ClassVar[str] = "george"

    infer_epoch: int = 0
    reduce: Reduction = "loss"
    components: int = 2
    clustering: Clustering = "gmm"
    k_max: int = 10
    overcluster: int = 1
    eta_q: float = 0.01
    adjustment: float = 2.0

    def __post_init__(self) -> None:
        self._budget = 0
        super().__post_init__()
        self.objective()
        for option, least in (("components", 1), ("k_max", 2), ("overcluster", 1)):
            if getattr(self, option) < least:
                raise ConfigError(f"{option} of george is {getattr(self, option)}; give at least {least}")
        for option, kinds in (("reduce", get_args(Reduction)), ("clustering", get_args(Clustering))):
            if getattr(self, option) not in kinds:
                given = getattr(self, option)
                raise ConfigError(f"{option} of george can't be {given!r}{nearest(given, kinds)}")

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """Whether features are clustered, or only logits."""
        return self.reduce != "loss"

    @property
    def warmup_epochs(self) -> int:
        """The plain training: `infer_epoch`, or as long as the budget once it is known."""
        return self.infer_epoch or self._budget

    def validate(self, planned: PlannedTraining) -> None:
        """Hear how long plain training is."""
        self._budget = planned.epochs

    def objective(self) -> GroupDroLoss:
        """GroupDRO on the clusters."""
        return GroupDroLoss(self.eta_q, self.adjustment)

    def infer(self, context: Context) -> Tensor:
        """The clusters of all classes, numbered class by class."""
        if self.warmup_epochs == 0:
            raise ConfigError("george trains plainly for the whole budget and was not told it; set infer_epoch")
        active = context.active_positions()
        labels = context.examples.labels[active]
        clusters = subclasses(
            self._points(context, active, labels),
            labels,
            context.outputs.losses(active),
            clustering=self.clustering,
            k_max=self.k_max,
            overcluster=self.overcluster,
            seed=context.seed,
        )
        _, groups = torch.unique(labels * (int(clusters.max()) + 1) + clusters, return_inverse=True)
        return spread_over(active, groups, len(context.examples))

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Draw clusters equally often, as GroupDRO does."""
        active = context.active_positions()
        return Plan(sample_weight=spread_over(active, balance_weights(groups[active]), len(groups)))

    def _points(self, context: Context, active: Tensor, labels: Tensor) -> Tensor:
        """What is clustered, float of shape (active, d); each class is reduced by itself."""
        if self.reduce == "loss":
            return log_odds(context.outputs.logits(active), labels)
        features = context.outputs.features(active)
        if self.reduce == "none":
            return features
        components = min(self.components, features.shape[1])
        points = torch.zeros(len(active), components, dtype=torch.float64)
        for label in torch.unique(labels).tolist():
            mine = labels == label
            if self.reduce == "pca":
                points[mine] = principal_components(features[mine], components)
            else:
                seed = derive_seed(context.seed, "george", label)
                points[mine] = umap_embedding(features[mine], components, seed).to(torch.float64)
        return points
