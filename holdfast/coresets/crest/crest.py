"""CREST: train on weighted mini-batches that stand for larger random ones, chosen again when the loss says so.

Yang, Kang and Mirzasoleiman, "Towards Sustainable Learning: Coresets for Data-efficient Deep Learning" (ICML 2023,
https://arxiv.org/abs/2306.01244), Algorithm 1 of it and of the dissertation, whose chapter 2 it is
(https://escholarship.org/uc/item/0399v1qw; equations are numbered as there). From each of P random subsets of r
examples a mini-batch of m is chosen by the medoids of gradients; these are trained on, one at random per step, until a
quadratic model of the loss around the point of choice is off by more than a tolerance. Examples that are learned leave
the pool. Use it where steps are what you can't afford: a budget of a tenth of the usual ones. It costs forward passes
over the subsets, and at a choice a few mini-batches twice backward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.coresets.accounting import Accounts
from holdfast.coresets.crest.augmented_views import AugmentedViews
from holdfast.coresets.crest.batch_norm import FrozenStatistics, WeightedStatistics, statistics_are_warm
from holdfast.coresets.crest.gradient_proxies import GradientProxies, Proxy, check_metric, gradient_proxies
from holdfast.coresets.crest.learned_examples import LossWatch
from holdfast.coresets.crest.mini_batches import SubsetCandidates, mini_batch_coresets
from holdfast.coresets.crest.trust_region import Anchor, CurvatureOf, TrustRegion, TrustRegionSettings
from holdfast.errors import ConfigError
from holdfast.primitives.similarity import LastLayerGradients, Metric
from holdfast.training.clock import Clock
from holdfast.training.objective import Objective
from holdfast.training.options import check_kinds
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining, Policy

_PASS = 0.1  # of the training set: the unit of the window, and how many coresets there are at most
_FEWEST_LEFT = 0.2  # of the training set: what dropping leaves at least


@dataclass(kw_only=True)
class Crest(Policy):
    """Mini-batch coresets, as long as they hold.

    Attributes:
        batch_size: m, examples in a mini-batch, by default the run's; a set that has fewer is a mini-batch as a whole.
        subset: r, examples in the random subset that a mini-batch stands for; by default a hundredth of the training
            set, and four times the mini-batch at least.
        coresets: b, mini-batches chosen at first, and per step of the interval as long as they make up less than a
            tenth of the training set.
        tolerance: tau, by how much of the loss its model may be off before mini-batches are chosen again.
        interval: h, steps between two checks at first; it grows as the loss flattens, to a tenth of the training set
            at most unless it starts above.
        drop_learned: take learned examples out of the pool.
        learned_loss: alpha, the largest loss of a learned example.
        window: T2, for how long an example must have been learned, in tenths of the training set.
        sightings: how often it must have been seen in that time.
        proxy: what stands for an example's gradient. With up to three classes `logit` has few values; use `feature`.
        metric: how distances of gradients become similarities.
        by_class: draw and choose in each class in proportion; classes with few places are drawn from together, and a
            mini-batch with fewer places than its subset has classes is chosen from all of them alike.
        order: 1 models the loss without curvature (ablation).
        smooth: average gradient and curvature over time; without it is an ablation.
        gradient_memory: beta_1, how much of the average of gradients stays with each mini-batch.
        curvature_memory: beta_2, how much of that of squared curvatures.
        curvature_of: the weights that the model of the loss is a function of: `all`, or those of the `head`, for
            networks whose second derivatives cost too much.
        draws: random probes per mini-batch for the curvature. The noise of a single one makes curvature look larger
            than it is; 8 on 1 `modelled` mini-batch cost as much as 1 on 5 and hold for longer.
        anchor: the loss at the point of choice: of the random subsets, the same that are checked later (`paired`), or
            of the `coreset`.
        modelled: on how many of the mini-batches the loss is modelled. Curvature is averaged over hundreds of them, so
            a few per choice do, and each costs as much as two or three steps.
        checked: on how many of the random subsets the loss is checked.
        statistics: what batch norm goes by when choosing and checking: those of the `batch`, or `running` ones. With
            `weighted` it weighs the examples of a mini-batch as the loss does, in the training of `fit` too; a loop of
            your own does that by `weighted_batch_norm` around its forward pass. With `frozen` the running ones stay as
            they are after a warm-up and are what training goes by (in a loop of your own, by `frozen_batch_norm`).
        warmup: for how long `frozen` statistics are learned, in tenths of the training set. Freeze them when the
            learning rate has fallen: before, training can diverge.
        cached_view: augment once per choice, choose by these views and train on them, as the published code does. By
            default choices are made on clean images and training augments anew at every step.
        every_batch: choose a mini-batch before every step, without any model of the loss: the best that choices can do.
            It costs a forward pass over a subset per step, which for small networks is less than the model does.
        reshuffle: cut the mini-batches anew out of all that were chosen (ablation): none stands for a subset then.
    """

    name: ClassVar[str] = "crest"
    acts_between_steps: ClassVar[bool] = True

    batch_size: int | None = None
    subset: int | None = None
    coresets: int = 5
    tolerance: float = 0.05
    interval: float = 1.0
    drop_learned: bool = True
    learned_loss: float = 0.1
    window: int = 20
    sightings: int = 2
    proxy: Proxy = "logit"
    metric: Metric = "euclidean"
    by_class: bool = True
    order: Literal[1, 2] = 2
    smooth: bool = True
    gradient_memory: float = 0.9
    curvature_memory: float = 0.999
    curvature_of: CurvatureOf = "all"
    draws: int = 1
    anchor: Anchor = "paired"
    modelled: int = 5
    checked: int = 2
    statistics: Literal["batch", "weighted", "running", "frozen"] = "batch"
    warmup: int = 20
    cached_view: bool = False
    every_batch: bool = False
    reshuffle: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        for option, least in (
            ("batch_size", 1),
            ("subset", 1),
            ("coresets", 1),
            ("learned_loss", 0),
            ("window", 1),
            ("sightings", 1),
            ("draws", 1),
            ("modelled", 1),
            ("checked", 1),
            ("warmup", 0),
        ):
            if (value := getattr(self, option)) is not None and not value >= least:
                raise ConfigError(f"{option} of crest is {value}; give at least {least}")
        if not self.tolerance > 0:
            raise ConfigError(f"tolerance of crest is {self.tolerance}; give a positive number")
        if not 0 < self.interval < math.inf:
            raise ConfigError(f"interval of crest is {self.interval}; give a positive number of steps")
        for option in ("gradient_memory", "curvature_memory"):
            if not 0 <= getattr(self, option) < 1:
                raise ConfigError(f"{option} of crest is {getattr(self, option)}; give a number from 0, below 1")
        check_metric(self.name, self.proxy, self.metric)
        if self.batch_size is not None:
            self._check_subset(self.batch_size)
        self._size = self.batch_size or 1  # the run's, once it is known
        self._trust_region: TrustRegion
        self._first_curvature: float | None
        self._views: AugmentedViews | None
        self._forget()

    @property
    def needs_head(self) -> bool:
        """Whether gradients, or the model of the loss, go through the last layer."""
        return self.proxy in ("last_layer", "feature") or self.curvature_of == "head"

    def validate(self, planned: PlannedTraining) -> None:
        """There must be something to choose from, and a view to keep where it is to be kept."""
        self._check(self.batch_size or planned.batch_size, augments=planned.augments)

    def due(self, clock: Clock) -> bool:
        """At the start, and whenever the interval since the last check is over."""
        return clock.starts_stage or clock.stage_step >= self._next_check

    def objective(self) -> Objective | None:
        """The cross-entropy; with batch statistics that are weighted or frozen where that is asked for."""
        if self.statistics == "frozen":
            return FrozenStatistics(self.warmup)
        return WeightedStatistics() if self.statistics == "weighted" else None

    def update(self, context: Context) -> Plan:
        """The mini-batches to train on: those there are, or new ones where the loss is no longer as predicted."""
        self._size = self.batch_size or context.batch_size
        here, step, n = self._here(context), context.clock.stage_step, len(context.examples)
        if context.clock.starts_stage:
            self._check(self._size, augments=context.augment is not None)
            self._forget()
            self._watch = LossWatch(n)
            self._window_ends = self._window_steps(n)
        if self.drop_learned and step >= self._window_ends:
            active = context.plan.visits(n) > 0
            self._watch.close_window(
                context.examples.labels,
                threshold=self.learned_loss,
                active=active,
                sightings=self.sightings,
                fewest=math.ceil(_FEWEST_LEFT * int(active.sum())),
                fewest_of_class=2 * self._subset_size(n) // context.examples.n_classes,
            )
            self._window_ends = step + self._window_steps(n)
        anew = context.clock.starts_stage or self.every_batch or _cut(context.own, context.plan)
        plan = self._choose(here, context) if anew or self._is_off(here, context) else context.own
        self._next_check = step + (1 if self.every_batch else self._steps)
        return plan

    def save_artifacts(self, folder: Path) -> None:
        """What was chosen when and what it cost, as ``crest.json``."""
        self.accounts.save(folder, self.name)

    def state_dict(self) -> dict[str, Any]:
        """Trust region, watch and intervals; the mini-batches are the chain's to remember."""
        return {
            "region": self._trust_region.state_dict(),
            "watch": self._watch.state_dict(),
            "views": None if self._views is None else [self._views.positions, self._views.views],
            "first_curvature": self._first_curvature,
            "steps": self._steps,
            "count": self._count,
            "next_check": self._next_check,
            "window_ends": self._window_ends,
            "accounts": self.accounts.to_json(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._trust_region.load_state_dict(state["region"])
        self._watch.load_state_dict(state["watch"])
        self._views = None if state["views"] is None else AugmentedViews(*state["views"])
        self._first_curvature = state["first_curvature"]
        self._steps, self._count = state["steps"], state["count"]
        self._next_check, self._window_ends = state["next_check"], state["window_ends"]
        self.accounts = Accounts.from_json(state["accounts"])

    def _forget(self) -> None:
        """Begin anew, as at the start of every stage."""
        self.accounts = Accounts()
        self._trust_region = TrustRegion(
            order=self.order,
            memory=(self.gradient_memory, self.curvature_memory) if self.smooth else None,
            curvature_of=self.curvature_of,
            draws=self.draws,
            anchor=self.anchor,
            checked=self.checked,
        )
        self._watch = LossWatch(0)
        self._views = None
        self._first_curvature = None
        self._steps, self._count = 1, self.coresets
        self._next_check = self._window_ends = 0

    def _check_subset(self, size: int) -> None:
        if self.subset is not None and self.subset < size:
            raise ConfigError(
                f"crest chooses mini-batches of {size} from subsets of {self.subset}; give a subset of at least {size}"
            )

    def _check(self, size: int, *, augments: bool) -> None:
        self._check_subset(size)
        if self.cached_view and not augments:
            raise ConfigError(
                "crest is to keep an augmented view and nothing is augmented; augment, or leave cached_view out"
            )

    def _here(self, context: Context) -> TrustRegionSettings:
        if context.model is None:
            raise ConfigError(
                f"{context.policy} looks at the model and was given none; pass it: curator.epochs(n, model, optimizer)"
            )
        statistics = self.statistics
        if statistics == "frozen":
            warm = statistics_are_warm(context.clock, self._size, len(context.examples), self.warmup)
            statistics = "running" if warm else "batch"
        return TrustRegionSettings(context.model, context.examples, context.head, statistics)

    def _is_off(self, here: TrustRegionSettings, context: Context) -> bool:
        if self._views is not None:
            here = _seen_as(here, self._views)
        return self._trust_region.error(here, context.clock.step, self.accounts) > self.tolerance

    def _choose(self, here: TrustRegionSettings, context: Context) -> Plan:
        """A mini-batch from each of P random subsets, and the model of the loss here."""
        pool, labels = self._pool(context), context.examples.labels
        subsets = self._draw(context, pool)
        views = None
        if self.cached_view and context.augment is not None:
            views = AugmentedViews.of(here.examples, torch.cat(subsets), context.augment, context.stream("view"))
            here = _seen_as(here, views)
        proxies = self._proxies_of(here, subsets)
        with self.accounts.timed("choose"):
            chosen = mini_batch_coresets(
                _joined([one.proxies for one in proxies]),
                labels[torch.cat(subsets)],
                len(subsets),
                min(self._size, len(pool)),
                by_class=self.by_class,
                metric=self.metric,
            )
        batches = torch.stack([subset[one.chosen] for subset, one in zip(subsets, chosen, strict=True)])
        weights = torch.stack([one.weights for one in chosen])
        record: dict[str, float] = {"step": context.clock.step, "coresets": len(subsets), "pool": len(pool)}
        if not self.every_batch:
            some = slice(self.modelled)
            probes = [context.stream("probe", number) for number in range(len(batches[some]))]
            self._trust_region.begin(
                here, batches[some], weights[some], proxies=proxies, probes=probes, accounts=self.accounts
            )
            self._plan_next_check(len(labels))
            record["interval"] = self._steps
            self._views = None if views is None else views.subset(torch.cat(self._trust_region.reference))
        self.accounts.selections.append(record)
        if self.reshuffle:
            order = torch.randperm(batches.numel(), generator=context.stream("reshuffle"))
            batches, weights = (cut.flatten()[order].reshape(cut.shape) for cut in (batches, weights))
        return Plan(
            batches=batches, batch_weight=weights, batch_inputs=None if views is None else views.gather(batches)
        )

    def _draw(self, context: Context, pool: Tensor) -> list[Tensor]:
        labels, size = context.examples.labels, min(self._subset_size(len(context.examples)), len(pool))
        with self.accounts.timed("look"):
            drawn = SubsetCandidates(
                pool, labels, by_class=self.by_class, visits=context.plan.visits(len(labels))[pool]
            )
            return [
                drawn.draw(size, context.stream("subset", number))
                for number in range(1 if self.every_batch else self._count)
            ]

    def _proxies_of(self, here: TrustRegionSettings, subsets: list[Tensor]) -> list[GradientProxies]:
        with self.accounts.timed("look"):
            proxies = [
                gradient_proxies(
                    here.model, here.examples, one, proxy=self.proxy, statistics=here.statistics, head=here.head
                )
                for one in subsets
            ]
        examples = sum(len(subset) for subset in subsets)
        self.accounts.forward += examples
        if self.proxy == "full":
            self.accounts.forward += examples
            self.accounts.backward += examples
        for one in proxies:
            self._watch.record(one.positions, one.losses)
        return proxies

    def _plan_next_check(self, n: int) -> None:
        """T1 = h |H_0| / |H|: the flatter the loss, the longer its model holds, and the more mini-batches it takes."""
        most = max(math.ceil(_PASS * n / self._size), self.coresets)
        norm = self._trust_region.curvature_norm
        if self._first_curvature is None:
            self._first_curvature = norm
        longer = self._first_curvature / norm if norm > 0 else 1.0
        self._steps = max(1, min(math.ceil(self.interval * longer), max(most, math.ceil(self.interval))))
        self._count = min(self.coresets * self._steps, most)

    def _pool(self, context: Context) -> Tensor:
        """Positions of what earlier policies left and what isn't learned."""
        return (self._watch.pool & (context.plan.visits(len(context.examples)) > 0)).nonzero().flatten()

    def _subset_size(self, n: int) -> int:
        return self.subset or min(n, max(round(n / 100), 4 * self._size))

    def _window_steps(self, n: int) -> int:
        return self.window * math.ceil(_PASS * n / self._size)


def _cut(plan: Plan, upstream: Plan) -> bool:
    """Whether there are no mini-batches yet, or an earlier policy has dropped something that is in them."""
    return plan.batches is None or (upstream.active is not None and not bool(upstream.active[plan.batches].all()))


def _joined(proxies: list[Tensor | LastLayerGradients | None]) -> Tensor | LastLayerGradients:
    factored = [part for part in proxies if isinstance(part, LastLayerGradients)]
    if factored:
        return LastLayerGradients(
            torch.cat([part.residuals for part in factored]), torch.cat([part.features for part in factored])
        )
    return torch.cat([part for part in proxies if isinstance(part, Tensor)])


def _seen_as(here: TrustRegionSettings, views: AugmentedViews) -> TrustRegionSettings:
    return replace(here, examples=replace(here.examples, inputs=views))
