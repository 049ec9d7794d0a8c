"""CREST: train on weighted mini-batches that stand for larger random ones.

Yang, Kang and Mirzasoleiman, "Towards Sustainable Learning: Coresets for Data-efficient Deep Learning" (ICML 2023,
https://arxiv.org/abs/2306.01244), Algorithm 1 of it and of the dissertation, whose chapter 2 it is
(https://escholarship.org/uc/item/0399v1qw; equations are numbered as there). From each of P random subsets of r
examples a mini-batch of m is chosen by the medoids of gradients. Examples that are learned leave the pool.

The algorithm as ``published`` trains on one of the mini-batches at random per step, until a quadratic model of the loss
around the point of choice is off by more than a tolerance. It chooses more mini-batches than it trains on, and a model
of the loss costs more than choosing. By default CREST is ``lazy``: a few mini-batches are chosen when needed, from
subsets twice their size, each is trained on, none twice; and choosing ends when the learning rate has fallen,
because what it saves is noise, and the rate is what noise is multiplied by. From then on mini-batches are stratified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.coresets.accounting import Accounts
from holdfast.coresets.crest.augmented_views import AugmentedViews
from holdfast.coresets.crest.batch_norm import FrozenStatistics, WeightedStatistics, statistics_are_warm
from holdfast.coresets.crest.gradient_proxies import GradientProxies, Proxy, check_metric, gradient_proxies
from holdfast.coresets.crest.learned_examples import LossWatch
from holdfast.coresets.crest.mini_batches import SubsetCandidates, mini_batch_coresets
from holdfast.coresets.crest.trust_region import Anchor, CurvatureOf, TrustRegion, TrustRegionSettings
from holdfast.coresets.crest.validity import PointOfChoice, Validity
from holdfast.coresets.health import cost_of_choosing
from holdfast.errors import ConfigError
from holdfast.models.heads import find_head
from holdfast.primitives.similarity import LastLayerGradients, Metric
from holdfast.training.clock import Clock
from holdfast.training.health.check import Finding
from holdfast.training.health.observed import Observed
from holdfast.training.objective import Objective
from holdfast.training.options import check_kinds
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, PlannedTraining, Policy, Record

_PASS = 0.1  # of the training set: the unit of the window, and how many coresets there are at most
_FEWEST_LEFT = 0.2  # of the training set: what dropping leaves at least
_NEVER = 2**62  # a step that no training reaches

#: Options that only the published algorithm has a use for.
_OF_PUBLISHED = (
    "coresets",
    "interval",
    "order",
    "smooth",
    "gradient_memory",
    "curvature_memory",
    "curvature_of",
    "draws",
    "anchor",
    "modelled",
    "checked",
    "reshuffle",
)


@dataclass(kw_only=True)
class Crest(Policy):
    """Mini-batch coresets, chosen when they are needed.

    Attributes:
        algorithm: `lazy` chooses a few mini-batches at a time and trains on each; `published` is Algorithm 1 of the
            paper. Options that only that one has are marked (published).
        batch_size: m, examples in a mini-batch, by default the run's; a set that has fewer is a mini-batch as a whole.
        subset: r, examples in the random subset that a mini-batch stands for; by default twice the mini-batch, and with
            the published algorithm a hundredth of the training set, four times the mini-batch at least.
        ahead: how many mini-batches are chosen at a time (lazy).
        uses: how often each of them is trained on at most (lazy). From 2 on choices are tested before each further use.
        validity: the test: by the `change` of the loss on a subset that was looked at anyway, or by the `curvature` of
            the loss along the way since the choice (lazy).
        until_rate: choosing ends when the learning rate has fallen below this share of its highest; 0 to choose until
            the end (lazy).
        coresets: (published) b, mini-batches chosen at first, and per step of the interval as long as they make up less
            than a tenth of the training set.
        tolerance: tau, by how much of the loss its model, or the test of validity, may be off before mini-batches are
            chosen again.
        interval: (published) h, steps between two checks at first; it grows as the loss flattens, to a tenth of the
            training set at most unless it starts above.
        drop_learned: take learned examples out of the pool.
        learned_loss: alpha, the largest loss of a learned example.
        window: T2, for how long an example must have been learned, in tenths of the training set.
        sightings: how often it must have been seen in that time.
        proxy: what stands for an example's gradient; by default `last_layer` for networks with batch norm whose last
            layer is known, and else `logit`. With up to three classes `logit` has few values; use `feature`.
        metric: how distances of gradients become similarities.
        by_class: draw and choose in each class in proportion; classes with few places are drawn from together, and a
            mini-batch with fewer places than its subset has classes is chosen from all of them alike.
        order: (published) 1 models the loss without curvature (ablation).
        smooth: (published) average gradient and curvature over time; without it is an ablation.
        gradient_memory: (published) beta_1, how much of the average of gradients stays with each mini-batch.
        curvature_memory: (published) beta_2, how much of that of squared curvatures.
        curvature_of: (published) the weights that the model of the loss is a function of: `all`, or those of the
            `head`, for networks whose second derivatives cost too much.
        draws: (published) random probes per mini-batch for the curvature. The noise of a single one makes curvature
            look larger than it is; 8 on 1 `modelled` mini-batch cost as much as 1 on 5 and hold for longer.
        anchor: (published) the loss at the point of choice: of the random subsets, the same that are checked later
            (`paired`), or of the `coreset`.
        modelled: (published) on how many of the mini-batches the loss is modelled. Curvature is averaged over hundreds
            of them, so a few per choice do, and each costs as much as two or three steps.
        checked: (published) on how many of the random subsets the loss is checked.
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
        reshuffle: (published) cut the mini-batches anew out of all that were chosen (ablation): none stands for a
            subset then.
    """

    name: ClassVar[str] = "crest"
    acts_between_steps: ClassVar[bool] = True

    algorithm: Literal["lazy", "published"] = "lazy"
    batch_size: int | None = None
    subset: int | None = None
    ahead: int = 4
    uses: int = 1
    validity: Validity = "change"
    until_rate: float = 0.5
    coresets: int = 5
    tolerance: float = 0.05
    interval: float = 1.0
    drop_learned: bool = True
    learned_loss: float = 0.1
    window: int = 20
    sightings: int = 2
    proxy: Proxy | None = None
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
            ("ahead", 1),
            ("uses", 1),
            ("until_rate", 0),
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
        if self.algorithm == "lazy":
            for option in _OF_PUBLISHED:
                if getattr(self, option) != getattr(Crest, option):
                    raise ConfigError(
                        f"{option} of crest belongs to the published algorithm; set algorithm to published, or leave "
                        f"{option} out"
                    )
        if self.proxy is not None:
            check_metric(self.name, self.proxy, self.metric)
        if self.batch_size is not None:
            self._check_subset(self.batch_size)
        self._size = self.batch_size or 1  # the run's, once it is known
        self._trust_region: TrustRegion
        self._first_curvature: float | None
        self._views: AugmentedViews | None
        self._point: PointOfChoice | None
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
        if self._is_lazy and self._is_over(context):
            self._next_check = _NEVER
            return Plan(strata=context.examples.labels)
        anew = context.clock.starts_stage or self.every_batch or _cut(context.own, context.plan)
        plan = self._choose(here, context) if anew or self._is_off(here, context) else context.own
        self._next_check = step + (1 if self.every_batch else self.ahead if self._is_lazy else self._steps)
        return plan

    def save_artifacts(self, folder: Path) -> None:
        """What was chosen when and what it cost, as ``crest.json``."""
        self.accounts.save(folder, self.name)

    def health(self, observed: Observed) -> list[Finding]:
        """Whether choosing cost less than training, once that is over."""
        if observed.outcome is None:
            return []
        trained = sum(int(record["examples"]) for record in observed.outcome.history)
        return [cost_of_choosing(self.accounts, trained)]

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
            "accounts": self.accounts.state_dict(),
            "point": None if self._point is None else self._point.state_dict(),
            "uses_left": self._uses_left,
            "highest_rate": self._highest_rate,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._trust_region.load_state_dict(state["region"])
        self._watch.load_state_dict(state["watch"])
        self._views = None if state["views"] is None else AugmentedViews(*state["views"])
        self._first_curvature = state["first_curvature"]
        self._steps, self._count = state["steps"], state["count"]
        self._next_check, self._window_ends = state["next_check"], state["window_ends"]
        self.accounts = Accounts.of_state(state["accounts"])
        self._point = None if state["point"] is None else PointOfChoice(**state["point"])
        self._uses_left, self._highest_rate = int(state["uses_left"]), float(state["highest_rate"])

    def new_records(self) -> list[Record]:
        """The choices and checks since last asked."""
        return self.accounts.new_records()

    def recall(self, records: list[Record]) -> None:
        """Take back the choices and checks."""
        self.accounts.recall(records)

    @property
    def _is_lazy(self) -> bool:
        return self.algorithm == "lazy" and not self.every_batch

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
        self._steps, self._count = 1, self.ahead if self._is_lazy else self.coresets
        self._point, self._uses_left, self._highest_rate = None, 0, 0.0
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
        if self._is_lazy:
            return self._is_used_up(here, context.clock.step)
        return self._trust_region.error(here, context.clock.step, self.accounts) > self.tolerance

    def _is_over(self, context: Context) -> bool:
        """Whether the learning rate has fallen so far that choosing is over, once and for all.

        What an optimizer has before its first step doesn't count: loops that warm up set it at every step.
        """
        rate = context.learning_rate
        if self._next_check == _NEVER:
            return True
        if rate is None or context.clock.starts_stage:
            return False
        self._highest_rate = max(self._highest_rate, rate)
        return rate < self.until_rate * self._highest_rate

    def _is_used_up(self, here: TrustRegionSettings, step: int) -> bool:
        """Whether the mini-batches were trained on as often as they may, or don't hold any more."""
        if self._uses_left == 0 or self._point is None:
            return True
        self._uses_left -= 1
        with self.accounts.timed("check"):
            error = self._point.error(here)
        self.accounts.forward += len(self._point.positions)
        if self._point.weights is not None:
            self.accounts.backward += 2 * len(self._point.positions)
        self.accounts.checks.append({"step": step, "error": error})
        return error > self.tolerance

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
        if self._is_lazy:
            self._begin_uses(here, batches, weights, proxies)
            self._views = None if views is None or self._point is None else views.subset(self._point.positions)
        elif not self.every_batch:
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
            batches=batches,
            batch_weight=weights,
            batch_inputs=None if views is None else views.gather(batches),
            batch_order=torch.arange(len(batches)) if self._is_lazy else None,
        )

    def _begin_uses(
        self, here: TrustRegionSettings, batches: Tensor, weights: Tensor, proxies: list[GradientProxies]
    ) -> None:
        """Remember what a second use is tested by, where there may be one."""
        self._uses_left, self._point = self.uses - 1, None
        if self._uses_left and self.validity == "change":
            self._point = PointOfChoice.of_subset(proxies[0].positions, proxies[0].losses)
        elif self._uses_left:
            with self.accounts.timed("model"):
                self._point = PointOfChoice.of_mini_batch(here, batches[0], weights[0])
            self.accounts.forward += batches.shape[1]

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
        proxy = self.proxy or _usual_proxy(here.model, here.head, self.metric)
        with self.accounts.timed("look"):
            proxies = [
                gradient_proxies(
                    here.model, here.examples, one, proxy=proxy, statistics=here.statistics, head=here.head
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
        usual = max(round(n / 100), 4 * self._size) if self.algorithm == "published" else 2 * self._size
        return self.subset or min(n, usual)

    def _window_steps(self, n: int) -> int:
        return self.window * math.ceil(_PASS * n / self._size)


def _cut(plan: Plan, upstream: Plan) -> bool:
    """Whether there are no mini-batches yet, or an earlier policy has dropped something that is in them."""
    return plan.batches is None or (upstream.active is not None and not bool(upstream.active[plan.batches].all()))


def _usual_proxy(model: nn.Module, head: str | None, metric: Metric) -> Proxy:
    """Last-layer gradients under batch norm, where those of the logits say less about what a step will do."""
    if metric == "cosine" or not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return "logit"
    try:
        find_head(model, head)
    except ConfigError:
        return "logit"
    return "last_layer"


def _joined(proxies: list[Tensor | LastLayerGradients | None]) -> Tensor | LastLayerGradients:
    factored = [part for part in proxies if isinstance(part, LastLayerGradients)]
    if factored:
        return LastLayerGradients(
            torch.cat([part.residuals for part in factored]), torch.cat([part.features for part in factored])
        )
    return torch.cat([part for part in proxies if isinstance(part, Tensor)])


def _seen_as(here: TrustRegionSettings, views: AugmentedViews) -> TrustRegionSettings:
    return replace(here, examples=replace(here.examples, inputs=views))
