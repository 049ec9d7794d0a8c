"""A curator drives a plain training loop: it hands out mini-batches as the plan says and runs policies when due.

In somebody else's loop three lines change::

    curator = Curator(train, policy, batch_size=128, seed=0)
    for epoch in curator.epochs(20, model, optimizer):                  # was: for epoch in range(20)
        for x, y, positions, weight in curator:                              # was: for x, y in loader
            losses = F.cross_entropy(model(x), y, reduction="none")
            loss = (weight * losses).mean()                              # was: loss = F.cross_entropy(model(x), y)
            ...

Iterating has no side effect: the same epoch can be looked at twice. What advances the curator is `end_step` (needed
only by policies that act between steps) and `end_epoch`, which `epochs` calls.

Inside a process group (torchrun) the same loop trains on several processes, with the model in DistributedDataParallel:
each is handed its share of every mini-batch, with weights such that the mean of the processes' gradients is that of one
process (`holdfast.training.shares`), and policies decide once for all (`holdfast.training.decision`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.examples import EXAMPLES_WANTED, Examples
from holdfast.data.workers import ReadingWorkers, default_workers
from holdfast.errors import ConfigError, HoldfastWarning, expect_kind
from holdfast.training.batch_reader import BatchReader
from holdfast.training.batches import Batch, Drawn, SharedBatch, parts_to_accumulate
from holdfast.training.clock import Clock
from holdfast.training.decision import Decision, decide_together
from holdfast.training.draws import Draws
from holdfast.training.model_outputs import ModelOutputs, device_of
from holdfast.training.objective import NewOptimizer, Objective
from holdfast.training.own_loop import OwnLoss
from holdfast.training.plan import Plan
from holdfast.training.policy import (
    Augmentation,
    Context,
    PlannedTraining,
    Policy,
    Request,
    Restart,
    ScaleLearningRate,
    StopAugmenting,
    Uniform,
    as_chain,
)
from holdfast.training.precision import Precision, check_precision
from holdfast.training.precision_check import DecisionCheck
from holdfast.training.ranks import Ranks, digest, unwrapped
from holdfast.training.requests import change_optimizer, go_back, starting_point


class Curator:
    """Mini-batches by plan, policies when due.

    Args:
        examples: the training set.
        policy: what decides; a chain of policies or one. Plain shuffling by default.
        batch_size: examples per optimizer step, over all processes together, unless the plan fixes mini-batches itself.
            A single example left over at the end of an epoch joins the last mini-batch, since batch norm can't train on
            one.
        seed: names all random streams.
        augment: applied to the inputs of training batches only.
        epoch_size: draws per epoch. By default an epoch is one pass over the active set, however large that is now;
            frameworks that fix the epoch's length once need a number here.
        drop_last: leave out an incomplete last mini-batch (a set smaller than one batch is kept whole).
        device: where batches go; by default where the model given to `start` lives.
        head: name of the model's head where it can't be found.
        validation: for policies that tune themselves on validation data.
        ranks: the processes that train together; by default those of torch.distributed when training starts. Give
            `ALONE` where each process of a group trains a model of its own.
        accumulate: in how many parts a step's mini-batch is handed out, for loops that accumulate gradients over
            several forward passes; `ends_step` says when to step.
        precision: what the model computes in when policies look at its outputs: that of your autocast.
        channels_last: hand out images with their channels last in memory.
        pin_memory: send mini-batches to a GPU from page-locked memory, while it computes.
        workers: processes that read mini-batches ahead; by default some where inputs are read one by one when needed,
            see `holdfast.data.workers`.

    Attributes:
        precision_check: what a lower precision changes about the first decision.
        ends_step: whether the mini-batch just handed out is the last of its optimizer step.
    """

    def __init__(
        self,
        examples: Examples,
        policy: Policy | None = None,
        *,
        batch_size: int = 32,
        seed: int = 0,
        augment: Augmentation | None = None,
        epoch_size: int | None = None,
        drop_last: bool = False,
        device: torch.device | None = None,
        head: str | None = None,
        validation: Examples | None = None,
        ranks: Ranks | None = None,
        accumulate: int = 1,
        precision: Precision = "fp32",
        channels_last: bool = False,
        pin_memory: bool = False,
        workers: int | None = None,
    ) -> None:
        expect_kind("examples", examples, Examples, EXAMPLES_WANTED)
        if policy is not None:
            expect_kind("policy", policy, Policy, "a policy, such as Spare()", "holdfast.build_method({!r}).policy")
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; give at least 1")
        if not 1 <= accumulate <= batch_size:
            raise ConfigError(
                f"accumulate is {accumulate} and batch_size {batch_size}; batch_size counts the examples of a whole "
                f"optimizer step, which is handed out in `accumulate` parts: give 1 to {batch_size}, or more examples"
            )
        if workers is not None and workers < 0:
            raise ConfigError(f"workers is {workers}; give 0 to read in the training process, or more")
        check_precision(precision, device)
        if epoch_size is not None and epoch_size < 1:
            raise ConfigError(f"epoch_size is {epoch_size}; give at least 1 draw per epoch")
        if len(examples) == 0:
            raise ConfigError("the training set is empty")
        self._readers = ReadingWorkers(default_workers(examples.inputs) if workers is None else workers, augment)
        self.examples = self._readers.reading(examples)
        self.accumulate = accumulate
        self.precision: Precision = precision
        self.ends_step = True
        self.chain = as_chain(policy if policy is not None else Uniform())
        self._own_loss = OwnLoss(self.chain)
        self.batch_size = batch_size
        self.seed = seed
        self.clock = Clock()
        self.learning_rate_scale = 1.0
        self.examples_seen = 0
        self.validation = validation
        self.augment = augment
        self.epoch_size = epoch_size
        self._drop_last = drop_last
        self._layout = {"channels_last": channels_last, "pin_memory": pin_memory}
        self._device = device
        self._head = head
        self.started = False
        self._plan_is_current = False
        self._drawn = 0
        self._epoch_left = 0
        self._adopt(Plan(), 0)
        self._ranks = ranks
        self._reader: BatchReader | None = None
        self._initial: dict[str, Any] | None = None
        self._scheduler: Any = None
        self._exhausted = -1  # the epoch whose mini-batches were handed out to the last one
        self.precision_check = DecisionCheck(precision)

    # ------------------------------------------------------------------------------------------------ the loop

    def epochs(
        self,
        n: int,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        scheduler: Any = None,
    ) -> Iterator[int]:
        """Count `n` epochs plus the warm-up epochs that the policies add, running what is due in between.

        Args:
            n: the budget.
            model: what policies look at; a policy that restarts training resets it.
            optimizer: what a policy that restarts training or changes the learning rate acts on.
            scheduler: of torch; you step it as always, and where a policy restarts training it begins again too.

        Yields:
            The number of each epoch, from where the curator stands.
        """
        self.chain.validate(PlannedTraining(n, self.batch_size, self.augment is not None))
        end = n + self.chain.warmup_epochs
        if self.started and self.clock.epoch >= end:
            return  # a training that was saved at its end: no policy has anything left to decide
        self.start(model, optimizer, scheduler=scheduler)
        while self.clock.epoch < end:
            yield self.clock.epoch
            last = self.clock.epoch + 1 == end
            if not self.warming_up:
                self._own_loss.warn_if_left_out(last=last)
            self.end_epoch(model, optimizer, last=last)

    def steps(
        self, n: int, model: nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None
    ) -> Iterator[Batch]:
        """The next `n` mini-batches, across the ends of epochs: a budget of steps, or a client's part of a round.

        Steps and epochs are reported on the way, so the loop only trains.

        Args:
            n: how many.
            model: what policies look at.
            optimizer: what policies may act on.

        Yields:
            The mini-batches.
        """
        self.start(model, optimizer)
        for _ in range(n):
            yield next(iter(self))
            self.end_step(model, optimizer)
            if self._epoch_left == 0:
                self.end_epoch(model, optimizer)

    def start(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        scheduler: Any = None,
    ) -> list[Request]:
        """Make the first plan, or the next one where the last epoch was thought to be the last; else do nothing."""
        model = unwrapped(model)
        self._scheduler = scheduler if scheduler is not None else self._scheduler
        if self._device is None and model is not None:
            self._device = device_of(model)
        self._agree_on_what_is_given()
        if self.started and self._plan_is_current:
            return []
        if not self.started and self.chain.warmup_epochs and model is not None and optimizer is not None:
            self._initial = starting_point(model, optimizer, self._scheduler)
        self.started = self._plan_is_current = True
        requests = self._update(model, optimizer)
        self._epoch_left = self.epoch_length
        return requests

    def __iter__(self) -> Iterator[Batch]:
        """What is left of the current epoch, a mini-batch at a time, following the plan if it changes on the way.

        Of several processes, each gets its share of every mini-batch (`SharedBatch`).
        """
        self._check_started()
        # Counted here as well as in `end_step`: a loop may fetch batches ahead of its steps, or report epochs only.
        drawn, left = self._drawn, self._epoch_left
        draws, step, epoch, reader = self._draws, self.clock.step, self.clock.epoch, self._batch_reader
        reading, augment, stays = self._reading(drawn, left, step), self.augment, reader.stays(self._device)
        while left > 0:
            # A policy changed the plan between two steps: draws are counted from that moment on, and what was read
            # ahead is dropped.
            if self._draws is not draws or self.augment is not augment:
                if self._draws is not draws:
                    draws, drawn = self._draws, self._drawn
                reading, augment = self._reading(drawn, left, step), self.augment
            size = draws.next_size(left)
            if self.accumulate == 1:
                yield next(reading) if stays else reader.on_device(next(reading), self._device)
            else:
                for part, last in parts_to_accumulate(next(reading), self.accumulate, draws.step_size):
                    self.ends_step = last
                    yield reader.on_device(part, self._device)
            # The loop has ended the epoch itself, by `steps` or early; what was left of it belongs to the next one.
            if self.clock.epoch != epoch:
                return
            drawn, left, step = drawn + draws.taken(size), left - size, step + 1
        self._exhausted = epoch

    def drawn(self) -> Iterator[Drawn]:
        """The mini-batches left in the epoch, of all processes together, without their inputs: for loaders."""
        self._check_started()
        epoch, left = self.clock.epoch, self._epoch_left
        draws, upcoming = self._draws, self._draws.upcoming(self._drawn, left, self.clock.step)
        while left > 0 and self.clock.epoch == epoch:
            if self._draws is not draws:  # a policy changed the plan between two steps
                draws, upcoming = self._draws, self._draws.upcoming(self._drawn, left, self.clock.step)
            left -= draws.next_size(left)
            yield next(upcoming)

    def objective(self, model: nn.Module, new_optimizer: NewOptimizer | None = None) -> Objective:
        """The loss that the policies train with, for now: ask for it in every epoch, since a warm-up has another.

        Use it as ``objective(Forward(model, curator.shared(batch), clock=curator.clock))``. What it learns on the way
        (GroupDRO's group weights) is in its ``state_dict``, which is yours to save.

        Args:
            model: the model, with the weights that the stage starts from when asked for the first time in it.
            new_optimizer: makes an optimizer for a model, as yours was made; LfF needs it for its second network.

        Returns:
            The method's loss; the cross-entropy with the mini-batch's weights where it has none.
        """
        groups = self.plan.groups
        grouped = self.examples if groups is None else self.examples.with_groups(groups)
        return self._own_loss.prepared(grouped, unwrapped(model), new_optimizer, warming_up=self.warming_up)

    def shared(self, batch: Batch) -> Batch:
        """The batch together with the mini-batch of all processes that it is a share of, where a loader handed it out.

        Losses that look at a mini-batch as a whole need it: ``objective(Forward(model, curator.shared(batch)))``.

        Raises:
            ConfigError: if the batch is not a share of a step that is left in this epoch.
        """
        self._own_loss.used()
        if self.ranks.count == 1 or isinstance(batch, SharedBatch):
            return batch
        positions, device = batch.positions.cpu(), batch.labels.device
        for drawn in self.drawn():
            share = self._batch_reader.share(len(drawn.positions))
            if torch.equal(drawn.positions[share.places], positions):
                labels = self.examples.labels[drawn.positions].to(device)
                whole = Batch(batch.inputs, labels, drawn.positions, drawn.weights.to(device))
                return SharedBatch.of(batch, whole, share)
        raise ConfigError(
            "the batch isn't a whole share of a step that is left in this epoch; give the batch of the current step, "
            "without accumulating"
        )

    def end_step(self, model: nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Tell that an optimizer step was made; runs policies that act between steps."""
        size = self._draws.next_size(self._epoch_left)
        self._epoch_left -= size
        self._drawn += self._draws.taken(size)
        self.examples_seen += size if self.plan.batches is None else self._draws.step_size
        self.clock = self.clock.after_step()
        if self.chain.between_steps and self._epoch_left > 0:
            self._update(unwrapped(model), optimizer)

    def end_epoch(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        last: bool = False,
    ) -> list[Request]:
        """Tell that the epoch is over; runs the policies that are due before the next one.

        Args:
            model: what policies look at.
            optimizer: what policies may act on.
            last: no epoch follows, so no policy is asked; `start` asks them if one follows after all.

        Returns:
            What policies asked for; already done to `model` and `optimizer` where these were given.
        """
        model = unwrapped(model)
        if model is not None:
            self.ranks.share_buffers(model)
        # Loops that don't report their steps have made all that were left.
        if self._epoch_left > 0:
            self._check_reported()
            steps = self.steps_left
            self._drawn += steps if self.plan.batches is not None else self._epoch_left
            self.examples_seen += self._epoch_left if self.plan.batches is None else steps * self._draws.step_size
            self.clock = self.clock.after_epoch(steps)
        else:
            self.clock = self.clock.after_epoch()
        # The draws that a dropped last mini-batch would have taken are skipped, so that the next epoch is a pass of its
        # own and not the rest of this one.
        if self._drop_last and self.epoch_size is None and self.plan.batches is None:
            self._drawn += -self._drawn % self._draws.order.pass_length
        self._plan_is_current = not last
        requests = self._update(model, optimizer) if self._plan_is_current else []
        self._epoch_left = self.epoch_length
        return requests

    # ----------------------------------------------------------------------------------------------- the plan

    @property
    def ranks(self) -> Ranks:
        """The processes that share every mini-batch; asked for when training starts."""
        if self._ranks is None:
            self._ranks = Ranks.current()
        return self._ranks

    @property
    def epoch_length(self) -> int:
        """Draws in an epoch under the current plan."""
        length = self.epoch_size
        if length is None:
            length = len(self.examples) if self.plan.copies is None else int(self.plan.copies.sum())
        size = self._draws.step_size
        return length - length % size if self._drop_last and length > size else length

    def __len__(self) -> int:
        """Mini-batches in an epoch under the current plan."""
        return self._draws.steps(self.epoch_length)

    @property
    def steps_left(self) -> int:
        """Mini-batches left in the current epoch."""
        return self._draws.steps(self._epoch_left)

    @property
    def stage(self) -> int:
        """How often training was started again."""
        return self.clock.stage

    @property
    def warming_up(self) -> bool:
        """Whether a policy is still to start training again; until then training is plain."""
        return self.clock.stage < self.chain.restarts

    @property
    def weighted(self) -> bool:
        """Whether the plan weighs examples in the loss; if not, all weights are one."""
        return self.plan.loss_weight is not None or self.plan.batch_weight is not None

    def epoch_draws(self) -> Tensor:
        """Positions drawn in the current epoch, in order, int64: what a sampler of another framework hands out."""
        self._check_started()
        return self._draws.positions(self._drawn, self._epoch_left)

    def weights(self, positions: Tensor) -> Tensor:
        """Loss weight of the examples at `positions`, float32; for loops that don't get their batches from here."""
        if self.plan.batch_weight is not None:
            raise ConfigError(
                "the plan weighs examples per mini-batch, so a weight can't be looked up by example; "
                "iterate the curator itself"
            )
        if self.plan.loss_weight is None:
            return torch.ones(len(positions))
        return self.plan.loss_weight[positions]

    # ------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to continue to the bit, in the middle of an epoch too."""
        return {
            "clock": self.clock._asdict(),
            "chain": self.chain.state_dict(),
            "seed": self.seed,
            "asked": self._plan_is_current,
            "since": self._draws.since,
            "drawn": self._drawn,
            "epoch_left": self._epoch_left,
            "learning_rate_scale": self.learning_rate_scale,
            "examples_seen": self.examples_seen,
            "augmenting": self.augment is not None,
            "initial": self._initial,
            "precision": self.precision_check.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken; seed, training set and policies must be the same."""
        if state["seed"] != self.seed:
            raise ConfigError(f"the checkpoint was made with seed {state['seed']}, this run has {self.seed}")
        # Only the policies' own parts are saved; the plan is merged from them again, by the same rules.
        self.chain.load_state_dict(state["chain"])
        # No generator was saved: the order of draws is a function of plan, seed and `since`, and is made when needed.
        self._adopt(self.chain.merged(), state["since"])
        self.clock = Clock(**state["clock"])
        self._drawn, self._epoch_left = state["drawn"], state["epoch_left"]
        self.learning_rate_scale, self._initial = state["learning_rate_scale"], state["initial"]
        self.augment = self.augment if state["augmenting"] else None
        self.examples_seen = state["examples_seen"]
        self.precision_check.load_state_dict(state.get("precision"))
        self.started, self._plan_is_current = True, state["asked"]

    def close(self) -> None:
        """End the worker processes, where there are some; they end with the curator anyway."""
        self._readers.close()

    # ---------------------------------------------------------------------------------------------- internals

    def _check_started(self) -> None:
        if not self.started:
            raise ConfigError("the curator was not started; loop over curator.epochs(n, model, optimizer)")

    def _check_reported(self) -> None:
        """A loop reports all of its steps or none; one that reports some accumulates gradients, or has left early."""
        reported, steps = self.clock.step_in_epoch, self.clock.step_in_epoch + self.steps_left
        remedy = (
            f"the curator handed out {steps} steps of this epoch and {reported} were reported; if you accumulate "
            f"gradients, tell it: Curator(batch_size={self._draws.step_size * -(-steps // max(reported, 1))}, "
            f"accumulate={-(-steps // max(reported, 1))}), and step where curator.ends_step"
        )
        if self.chain.between_steps:
            names = ", ".join(member.name for member in self.chain.members if member.acts_between_steps)
            call = "call curator.end_step(model, optimizer) after optimizer.step()"
            raise ConfigError(f"{names} acts between steps; {remedy if reported else call}")
        if reported and self._exhausted == self.clock.epoch:
            warnings.warn(remedy, HoldfastWarning, stacklevel=3)

    def _adopt(self, plan: Plan, since: int) -> None:
        self.plan = plan
        self._draws = Draws(plan, len(self.examples), self.seed, since, self.batch_size)

    @property
    def _batch_reader(self) -> BatchReader:
        if self._reader is None:
            self._reader = BatchReader(self.examples, self.seed, self.ranks, **self._layout)
        return self._reader

    def _reading(self, drawn: int, left: int, step: int) -> Iterator[Batch]:
        """The mini-batches that the plan as it is now has for the rest of the epoch."""
        upcoming = self._draws.upcoming(drawn, left, step)
        return self._batch_reader.read(upcoming, self.augment, kept=self.plan.batch_inputs is not None)

    def _agree_on_what_is_given(self) -> None:
        """All processes must have the same data, options and place in training: else they are told what differs."""
        if self.ranks.count == 1:
            return
        examples = self.examples
        self.ranks.expect_same(
            {
                "the training set": digest({"labels": examples.labels, "ids": examples.ids}),
                "seed": self.seed,
                "batch_size": self.batch_size,
                "epoch_size": self.epoch_size,
                "drop_last": self._drop_last,
                "the policies": " >> ".join(member.name for member in self.chain.members),
                "the plan": digest(self.plan.tensors()),
                "the place in training": [*self.clock, self._draws.since, self._drawn, self._epoch_left],
            },
            "give every process the same: the curator hands out the shares itself",
        )

    def _update(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> list[Request]:
        ranks = self.ranks
        # Policies live in the main process, so only that one knows whether they are due.
        if not ranks.flag(ranks.is_main and self.chain.due(self.clock)):
            return []
        if ranks.count == 1:
            outputs = None if model is None else self._outputs(model, self.precision)
            decision = self._decide(outputs, model, optimizer)
        else:
            if model is not None and self.clock.starts_epoch:
                ranks.expect_same(
                    {"the hash of the model's weights": digest(dict(model.named_parameters()))},
                    "train it in DistributedDataParallel, or give Curator(ranks=ALONE) where each trains its own",
                )
            decision = decide_together(
                ranks,
                model,
                self.examples,
                lambda outputs: self._decide(outputs, model, optimizer),
                features=self.chain.features_needed,
                head=self._head,
                precision=self.precision,
            )
        if not decision.plan.same_as(self.plan) or self.clock.starts_run:
            self._adopt(decision.plan, self.clock.step)
            self._drawn = 0
        for request in decision.requests:
            self._carry_out(request, model, optimizer)
        return decision.requests

    def _decide(
        self, outputs: ModelOutputs | None, model: nn.Module | None, optimizer: torch.optim.Optimizer | None
    ) -> Decision:
        context = Context(
            self.clock,
            self.examples,
            Plan(),
            model,
            outputs,
            self.seed,
            validation=self.validation,
            learning_rate=None if optimizer is None else optimizer.param_groups[0]["lr"],
            batch_size=self.batch_size,
            augment=self.augment,
            head=self._head,
        )
        before, seen = self.precision_check.copy_of(self.chain, context), replace(context)
        plan = self.chain.update(context)
        if before is not None and outputs is not None and outputs.forwarded:
            self.precision_check.compare(before, seen, plan, lambda m: self._outputs(m, "fp32"), optimizer)
        return Decision(plan, context.requests)

    def _outputs(self, model: nn.Module, precision: Precision) -> ModelOutputs:
        return ModelOutputs(
            model, self.examples, features=self.chain.features_needed, head=self._head, precision=precision
        )

    def _carry_out(self, request: Request, model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> None:
        if isinstance(request, StopAugmenting):
            self.augment = None
        elif isinstance(request, Restart):
            policies = " >> ".join(member.name for member in self.chain.members)
            go_back(self._initial, model, optimizer, self._scheduler, policies)
            self.learning_rate_scale = 1.0
            self.clock = self.clock.after_restart()
        else:
            if isinstance(request, ScaleLearningRate):
                self.learning_rate_scale *= request.factor
            if optimizer is not None:
                change_optimizer(request, optimizer, self._scheduler)
