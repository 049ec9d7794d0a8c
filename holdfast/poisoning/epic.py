"""EPIC (Yang, Liu and Mirzasoleiman, ICML 2022): drop isolated medoids of the gradients while training goes on.

The paper is https://proceedings.mlr.press/v162/yang22j.html; it is chapter 4 of the dissertation (https://escholarship.org/uc/item/0399v1qw),
where it is Algorithm 3.

After a warm-up, every few epochs, one forward pass gives a gradient per example, the k medoids of each class are
chosen, and those that nobody else is nearest to are dropped for good. Poisons that work are among them before they
do; poisons that don't needn't be. The smaller training set pays for the choosing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import ConfigError, DataError
from holdfast.files import write_atomically
from holdfast.models.heads import at_least_float32, find_head
from holdfast.poisoning.health import drops
from holdfast.poisoning.isolation import Medoids, Proxy, gradient_geometry, gradient_medoids
from holdfast.primitives.similarity import Geometry, Metric
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining, Policy

#: The columns of the log, in the order of a `Drop`, and how a checkpoint holds them.
_LOG = {
    "epoch": torch.int32,
    "id": torch.int64,
    "class": torch.int32,
    "cluster_size": torch.int32,
    "loss": torch.float32,
    "predicted": torch.int32,
}
_MOST_ROUNDS = 10**6  # of what a checkpoint may say


@dataclass(frozen=True, eq=False)
class Drop:
    """What one round dropped.

    Attributes:
        epoch: epochs completed before it.
        ids: of the examples, int64 of shape (d,).
        classes: of the examples, int64 of shape (d,).
        sizes: of the clusters that they were the medoids of, int64 of shape (d,).
        losses: of the examples then, float32 of shape (d,).
        predicted: what they were taken for then, int64 of shape (d,).
    """

    epoch: int
    ids: Tensor
    classes: Tensor
    sizes: Tensor
    losses: Tensor
    predicted: Tensor


@dataclass(kw_only=True)
class Epic(Policy):
    """Drops examples whose gradients stand alone in their class.

    Attributes:
        fraction: of the examples that are medoids in each round; more of them isolate more.
        start: epochs before the first round.
        every: rounds come at epochs that are multiples of this.
        stop: no round from this epoch on; until the end by default.
        proxy: what stands for a gradient: `logits` (softmax minus one-hot), `last-input` or `last-layer`.
        metric: `euclidean`, `exponential` (the published kernel) or `cosine`.
        pool: medoids of `all` examples, those that were dropped included, or of the `remaining` ones, which drops far
            more.
        largest: clusters of up to this many examples are isolated.
        equal_classes: as many medoids in every class, instead of shares by size.
        protect: choose medoids in each known group of a class instead of each class, so that a rare group is not
            isolated for being rare: `inferred` groups, where an earlier policy has some (``--groups spare``), the
            `data` set's own, or `none`. The data's are not read unasked: what marks a group may mark the poisons.
        stochastic: choose medoids by stochastic greedy, for classes of many thousands.
    """

    name: ClassVar[str] = "epic"

    fraction: float = 0.1
    start: int = 10
    every: int = 2
    stop: int | None = None
    proxy: Proxy = "logits"
    metric: Metric = "euclidean"
    pool: Literal["all", "remaining"] = "all"
    largest: int = 1
    equal_classes: bool = False
    protect: Literal["inferred", "data", "none"] = "inferred"
    stochastic: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ConfigError(f"fraction of epic is {self.fraction}; give a number between 0 and 1")
        if self.every < 1 or self.start < 0 or self.largest < 1:
            raise ConfigError(
                f"epic starts after {self.start} epochs, comes every {self.every} and isolates clusters of up to "
                f"{self.largest}; give at least 0, 1 and 1"
            )
        self.drops: list[Drop] = []
        self._remaining: Tensor | None = None

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        """Whether the gradient needs the inputs of the last layer."""
        return self.proxy == "last-layer"

    @property
    def needs_head(self) -> bool:
        """Whether the gradient goes through the last layer."""
        return self.proxy in ("last-layer", "last-input")

    def due(self, clock: Clock) -> bool:
        """At the multiples of `every` from `start` on, before `stop`."""
        epoch = clock.stage_epoch
        in_time = self.start <= epoch and (self.stop is None or epoch < self.stop)
        return clock.starts_epoch and in_time and epoch % self.every == 0

    def validate(self, planned: PlannedTraining) -> None:
        """Refuse a training that ends before the first round."""
        first = -(-max(self.start, 0) // self.every) * self.every
        if first >= planned.epochs:
            raise ConfigError(
                f"epic's first round is at epoch {first} and the training has {planned.epochs}; lower epic's start, or "
                "train longer"
            )

    def update(self, context: Context) -> Plan:
        """Drop what stands alone now."""
        examples, upstream = context.examples, context.active_positions()
        if self._remaining is None:
            self._remaining = torch.ones(len(examples), dtype=torch.bool)
        pool = upstream if self.pool == "all" else upstream[self._remaining[upstream]]
        medoids = gradient_medoids(
            self._gradients(context),
            self._parts(context),
            self.fraction,
            stream=context.stream("medoids"),
            pool=pool,
            metric=self.metric,
            equal=self.equal_classes,
            stochastic=self.stochastic,
        )
        self._drop(medoids, context, pool)
        return Plan(copies=self._remaining)

    def _parts(self, context: Context) -> Tensor:
        """What each example is compared with: its class, or its known group in it; int64 of shape (n,)."""
        labels = context.examples.labels
        groups = None if self.protect == "none" else context.plan.groups
        if self.protect == "data":
            groups = context.require_groups()
        if groups is None:
            return labels
        parts: Tensor = torch.unique(torch.stack([labels, groups]), dim=1, return_inverse=True)[1]
        return parts

    def _gradients(self, context: Context) -> Geometry:
        head = None
        if self.proxy == "last-input":
            assert context.model is not None
            head = at_least_float32(find_head(context.model, context.head)[1].weight.detach().cpu())
        features = context.outputs.features() if self.proxy == "last-layer" else None
        return gradient_geometry(context.outputs.residuals(), self.proxy, features=features, head=head)

    def _drop(self, medoids: Medoids, context: Context, pool: Tensor) -> None:
        """Take the isolated out for good, and write down those that are new."""
        assert self._remaining is not None
        examples = context.examples
        positions, sizes = self._isolated(medoids, context)
        remaining = self._remaining.clone()
        remaining[positions] = False
        left = torch.bincount(examples.labels[pool[remaining[pool]]], minlength=examples.n_classes)
        gone = (torch.bincount(examples.labels[pool], minlength=examples.n_classes) > 0) & (left == 0)
        if bool(gone.any()):
            name = examples.class_names[int(gone.nonzero()[0])]
            raise DataError(
                f"at epoch {context.clock.epoch} epic would drop the last example of class {name}; lower its fraction, "
                "start later, or stop earlier"
            )
        self._remaining = remaining
        self.drops.append(
            Drop(
                context.clock.epoch,
                examples.ids[positions],
                examples.labels[positions],
                sizes,
                context.outputs.losses(positions).float(),
                context.outputs.predictions(positions),
            )
        )

    def _isolated(self, medoids: Medoids, context: Context) -> tuple[Tensor, Tensor]:
        """Positions of isolated medoids that are still trained on, and the sizes of their clusters."""
        assert self._remaining is not None
        alone = medoids.isolated(self.largest) & self._remaining[medoids.positions]
        return medoids.positions[alone], medoids.sizes[alone]

    def save_artifacts(self, folder: Path) -> None:
        """Write ``epic.parquet``: what was dropped, when, and what the network made of it then."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(drop_log(self.drops)), sink)
        write_atomically(folder / "epic.parquet", sink.getvalue().to_pybytes())

    def health(self, observed: Observed) -> list[Finding]:
        """Whether what was dropped can be the exception, and whether drops fall on one known group."""
        if self._remaining is None:
            return []
        return drops(self.name, ~self._remaining, observed)

    def state_dict(self) -> dict[str, Any]:
        """Who is kept, and the log of the rounds.

        The log has a row for every example that could be dropped, so its size stays as it is while they are.
        """
        if self._remaining is None:
            return {}
        n, log = len(self._remaining), drop_log(self.drops)
        rows = {name: F.pad(torch.from_numpy(rows).to(_LOG[name]), (0, n - len(rows))) for name, rows in log.items()}
        return {"kept": self._remaining, "log": rows, "rounds": _stretches(self.drops, self.every)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back who is kept, and the rounds; checkpoints made before have a part for each of them."""
        self._remaining, self.drops = state.get("kept"), []
        if self._remaining is None or "log" not in state:
            self.drops = [Drop(**one) for one in state.get("rounds", [])]
            return
        dropped = int((~self._remaining).sum())
        rows = {name: state["log"][name][:dropped] for name in _LOG}
        if sum(rounds for _, rounds in state["rounds"]) > _MOST_ROUNDS:
            raise ValueError("the checkpoint has more rounds than a training has epochs")
        for first, rounds in state["rounds"]:
            for epoch in range(first, first + rounds * self.every, self.every):
                _, *columns = (rows[name][rows["epoch"] == epoch] for name in _LOG)
                self.drops.append(
                    Drop(epoch, *(column if column.is_floating_point() else column.long() for column in columns))
                )


def drop_log(drops: list[Drop]) -> dict[str, Any]:
    """All drops as columns ``epoch``, ``id``, ``class``, ``cluster_size``, ``loss`` and ``predicted``."""
    whole, real = torch.empty(0, dtype=torch.int64), torch.empty(0)
    columns = {
        "epoch": [whole, *(torch.full_like(drop.ids, drop.epoch) for drop in drops)],
        "id": [whole, *(drop.ids for drop in drops)],
        "class": [whole, *(drop.classes for drop in drops)],
        "cluster_size": [whole, *(drop.sizes for drop in drops)],
        "loss": [real, *(drop.losses for drop in drops)],
        "predicted": [whole, *(drop.predicted for drop in drops)],
    }
    return {name: torch.cat(parts).numpy() for name, parts in columns.items()}


def _stretches(drops: list[Drop], every: int) -> list[list[int]]:
    """The epochs of the rounds as stretches of one each `every` epochs: the first, and how many. A stage is one."""
    stretches = list[list[int]]()
    for drop in drops:
        if stretches and drop.epoch == stretches[-1][0] + stretches[-1][1] * every:
            stretches[-1][1] += 1
        else:
            stretches.append([drop.epoch, 1])
    return stretches
