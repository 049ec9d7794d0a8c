"""SPARE: separate the groups of each class early in training, then resample them evenly, without group labels.

Yang, Gan, Dziugaite and Mirzasoleiman, "Identifying Spurious Biases Early in Training through the Lens of Simplicity
Bias" (AISTATS 2024, https://arxiv.org/abs/2305.18761), which is chapter 5 and Algorithm 4 of the dissertation
(https://escholarship.org/uc/item/0399v1qw). A network learns the easiest feature first. After an epoch or two, the
examples of a class whose shortcut points to another class therefore lie elsewhere in output space: k-means finds them,
the silhouette tells how many groups there are, and training starts again with draws that even the clusters. Use it when
a shortcut is suspected and groups are unknown; the cost is that of plain training plus the first epochs. A silhouette
under 0.7 says that there was nothing to separate.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import ConfigError, DataError, HoldfastWarning, nearest
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.spurious.group_inference.health import epoch_of_inference, plausible_silhouette, separation
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.spurious.group_inference.quality import best_epoch, judge_groups
from holdfast.spurious.group_inference.separation import ClassMass, Clustering, separate
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, ResetOptimizer

Output = Literal["softmax", "logits", "features"]

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Spare(GroupInference):
    """Train a little, cluster the outputs of each class, start again with draws that even the clusters.

    Attributes:
        infer_epoch: infer the clusters after this many epochs, which come on top of the budget. ``auto`` clusters
            after each of the `latest` first epochs and takes the first whose clusters are well separated (`tau`, in
            the mean over classes), or else those with the highest silhouette; minorities that are tiny or half of their
            class don't count.
        latest: epochs that ``auto`` tries.
        tune_until: instead try every epoch up to this one, and keep the one whose clusters of the validation set match
            its groups best; 0 doesn't. Needs validation group labels.
        k_max: try 2 to this many clusters in each class.
        k: this many clusters in every class instead of a choice by silhouette.
        clustering: `kmeans`, or `exemplars` chosen by facility location on cosine similarities.
        across_classes: cluster all examples together and cut the clusters along the classes.
        tau: silhouette from which the clusters of a class count as well separated.
        lambda_high: how strongly small clusters are preferred in the other classes; 1 evens clusters.
        output: what is clustered; `features` are the inputs of the last linear layer.
        class_mass: draw classes equally often, or as often as they occur (`natural`).
        restart: train again from the start. Otherwise keep the weights, clear the optimizer, and count the first epochs
            as part of the budget.
        saved: take the clusters of this file instead, named without suffix, as `holdfast audit groups` and earlier runs
            leave it; there is no first stage then.
        partition: the clusters, once they are inferred.
        curve: mean silhouettes by epoch, where an epoch was chosen by them.
    """

    name: ClassVar[str] = "spare"

    infer_epoch: int | Literal["auto"] = "auto"  # type: ignore[assignment]
    latest: int = 5
    tune_until: int = 0
    k_max: int = 5
    k: int | None = None
    clustering: Clustering = "kmeans"
    across_classes: bool = False
    tau: float = 0.9
    lambda_high: float = 2.0
    output: Output = "softmax"
    class_mass: ClassMass = "equal"
    restart: bool = True
    saved: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partition: ClusterPartition | None = None
        self.curve: dict[int, float] = {}
        self._tried: dict[int, ClusterPartition] = {}
        self._ranks: dict[int, tuple[float, float]] = {}
        for option, least in (("latest", 1), ("tune_until", 0), ("k_max", 2), ("k", 1), ("lambda_high", 0)):
            value = getattr(self, option)
            if value is not None and not value >= least:
                raise ConfigError(f"{option} of spare is {value}; give at least {least}")
        if not -1 <= self.tau <= 1:
            raise ConfigError(f"tau of spare is {self.tau}; a silhouette is from -1 to 1")
        if self.output not in get_args(Output):
            raise ConfigError(f"spare can't cluster {self.output!r}{nearest(self.output, get_args(Output))}")
        if self.tries_epochs and not self.restart:
            raise ConfigError(
                "spare chooses its epoch by training on and then starting again; turn restart on, or give "
                "infer_epoch a number"
            )

    @property
    def first_epochs(self) -> int:
        """Epochs of plain training."""
        return self.latest if self.infer_epoch == "auto" else self.infer_epoch

    @property
    def tries_epochs(self) -> bool:
        """Whether an epoch is chosen among several."""
        return self.saved is None and (self.tune_until > 0 or self.infer_epoch == "auto")

    @property
    def warmup_epochs(self) -> int:
        """The epochs before the clusters are inferred, where training starts again after them."""
        return self._last_epoch if self.restart else 0

    @property
    def needs_head(self) -> bool:
        """Whether features are clustered."""
        return self.output == "features"

    def due(self, clock: Clock) -> bool:
        """After the first epochs; after each of them, where the best is to be found."""
        if clock.stage > 0 or not clock.starts_epoch:
            return False
        if clock.starts_stage and self._has_own_first_stage:
            return True
        last = self._last_epoch
        return clock.stage_epoch == last or (self.tries_epochs and 0 < clock.stage_epoch < last)

    def infer(self, context: Context) -> Tensor | None:
        """The clusters of what earlier policies left."""
        epoch, active = context.clock.stage_epoch, context.active_positions()
        if self.saved is not None:
            self.partition = ClusterPartition.load(self.saved).for_ids(context.examples.ids[active])
            return spread_over(active, self.partition.groups, len(context.examples))
        labels = context.examples.labels[active]
        partition = self._separate(harvest(context.outputs, active, self.output), labels, context, epoch)
        partition = replace(partition, ids=context.examples.ids[active])
        if self.tries_epochs:
            self._tried[epoch] = partition
            self._ranks[epoch] = (
                self._rank_on_validation(context, epoch) if self.tune_until else (plausible_silhouette(partition), 0.0)
            )
            if epoch < self._last_epoch:
                return None
            chosen = best_epoch(self._ranks) if self.tune_until else self._first_separated()
            _log.info("inferring after epoch %d, of %s", chosen, self._ranks)
            partition = self._tried[chosen]
            if not self.tune_until:
                self.curve = {epoch: rank[0] for epoch, rank in self._ranks.items()}
            self._tried, self._ranks = {}, {}
        self.partition = partition
        if epoch > 0 and not self.restart:
            context.request(ResetOptimizer())
        return spread_over(active, partition.groups, len(context.examples))

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Draw the clusters of a class evenly."""
        assert self.partition is not None
        return Plan(sample_weight=spread_over(context.active_positions(), self.partition.p, len(groups)))

    def health(self, observed: Observed) -> list[Finding]:
        """Whether the clusters stand apart, and what they are, where that is known."""
        if self.partition is None or self.k == 1:
            return []
        found = separation(self.partition)
        if self.curve:
            found.append(epoch_of_inference(self.curve, int(self.partition.about["infer_epoch"] or 0), self.tau))
        return [*found, *super().health(observed)]

    def save_artifacts(self, folder: Path) -> None:
        """The partition as ``spare.npz`` and ``spare.json``."""
        if self.partition is not None:
            self.partition.save(folder / self.name)

    def state_dict(self) -> dict[str, Any]:
        """The partition once there is one, and those of the epochs that were tried so far."""
        tried = {
            str(epoch): {"partition": partition.state_dict(), "rank": list(self._ranks[epoch])}
            for epoch, partition in self._tried.items()
        }
        chosen = {} if self.partition is None else {"partition": self.partition.state_dict()}
        if self.curve:
            chosen["curve"] = {str(epoch): value for epoch, value in self.curve.items()}
        return chosen | ({"tried": tried} if tried else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back the partitions."""
        self.partition = ClusterPartition.from_state(state["partition"]) if "partition" in state else None
        self.curve = {int(epoch): value for epoch, value in state.get("curve", {}).items()}
        tried = state.get("tried", {})
        self._tried = {int(epoch): ClusterPartition.from_state(entry["partition"]) for epoch, entry in tried.items()}
        self._ranks = {int(epoch): (entry["rank"][0], entry["rank"][1]) for epoch, entry in tried.items()}

    @property
    def _last_epoch(self) -> int:
        return 0 if self.saved is not None else self.tune_until or self.first_epochs

    def _first_separated(self) -> int:
        """The first epoch whose clusters are well separated, or else the one with the highest silhouette."""
        curve = {epoch: rank[0] for epoch, rank in self._ranks.items()}
        separated = [epoch for epoch in sorted(curve) if curve[epoch] >= self.tau]
        return separated[0] if separated else max(sorted(curve), key=lambda epoch: curve[epoch])

    def _separate(self, outputs: Tensor, labels: Tensor, context: Context, epoch: int) -> ClusterPartition:
        partition = separate(
            outputs,
            labels,
            k_max=self.k_max,
            k=self.k,
            clustering=self.clustering,
            across_classes=self.across_classes,
            tau=self.tau,
            lambda_high=self.lambda_high,
            class_mass=self.class_mass,
            seed=context.seed,
        )
        return replace(partition, about={**partition.about, "output": self.output, "infer_epoch": epoch})

    def _rank_on_validation(self, context: Context, epoch: int) -> tuple[float, float]:
        validation = context.validation
        if validation is None or validation.attributes is None or context.model is None:
            raise DataError(
                "spare tunes its epoch on a validation set with attributes and has none; give one, or set infer_epoch "
                "and leave tune_until at 0"
            )
        model_outputs = ModelOutputs(context.model, validation, head=context.head)
        outputs = harvest(model_outputs, torch.arange(len(validation)), self.output)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldfastWarning)
            partition = self._separate(outputs, validation.labels, context, epoch)
        return judge_groups(partition.clusters, validation.labels, validation.attributes).rank


def harvest(model_outputs: ModelOutputs, positions: Tensor, output: Output) -> Tensor:
    """What SPARE clusters, of the examples at `positions`, in that order: float32 of shape (positions, d)."""
    read = {
        "softmax": model_outputs.probabilities,
        "logits": model_outputs.logits,
        "features": model_outputs.features,
    }
    return read[output](positions)
