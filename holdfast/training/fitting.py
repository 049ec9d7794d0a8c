"""`fit`: the curator's loop with evaluation by group, choice of the best checkpoint, and a run that survives a kill.

It is a convenience on top of `Curator`; nothing here is needed to use a policy in a loop of your own.

Inside a process group all processes call `fit` with the same arguments and train together. Each runs the model on its
share of every mini-batch; losses are those of the whole one, gradients are averaged in one message in a fixed order, so
that a resumed run adds in the same order too. The first process alone keeps the run and calls the listeners.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from holdfast.data.examples import Examples, Splits
from holdfast.data.transforms import Compose, RandomCrop, RandomFlip
from holdfast.data.workers import ReadingWorkers, default_workers
from holdfast.errors import ConfigError, Interrupted, expect_kind
from holdfast.models.devices import find_device
from holdfast.primitives.threads import torch_threads
from holdfast.streams import derive_seed, seed_everywhere
from holdfast.training.batches import SharedBatch
from holdfast.training.best_epoch import BestEpoch
from holdfast.training.curator import Curator
from holdfast.training.divergence import check_loss, check_weights
from holdfast.training.evaluation.criteria import criterion
from holdfast.training.evaluation.evaluation import evaluate, predict
from holdfast.training.evaluation.folding import FOLDED_ABOVE
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.events import Event, EventKind, Listener
from holdfast.training.health.check import Health
from holdfast.training.health.general import check_reference
from holdfast.training.health.observed import Observed, Outcome
from holdfast.training.health.watch import HealthWatch
from holdfast.training.interruption import interruptions
from holdfast.training.method import Method, validated
from holdfast.training.model_card import ModelCard, facts_of_inputs
from holdfast.training.model_outputs import call, check_outputs, device_of, evaluating, to_device
from holdfast.training.objective import CrossEntropy, Objective
from holdfast.training.optimizer_steps import OptimizerSteps
from holdfast.training.plan import Plan
from holdfast.training.policy import Augmentation, Policy, Uniform
from holdfast.training.post_training import Trained
from holdfast.training.precision import check_precision
from holdfast.training.ranks import Ranks, alone, own_device, unwrapped
from holdfast.training.run import Run, understanding
from holdfast.training.running_mean import RunningMean
from holdfast.training.settings import Training, build_optimizer, learning_rate_factor

_STEP_EVENTS_PER_SECOND = 10

#: What the setting `augment` names.
AUGMENTATIONS: dict[str, Augmentation | None] = {
    "none": None,
    "crop": RandomCrop(margin="reflect"),
    "flip": RandomFlip(),
    "crop-flip": Compose((RandomCrop(margin="reflect"), RandomFlip())),
}


@dataclass(frozen=True, eq=False)
class FitResult:
    """What came out of a run.

    Attributes:
        model: the model with the weights of the best epoch.
        best_epoch: the epoch whose checkpoint was chosen on validation data, see `Training.select_by`.
        best_full_epochs: training examples gone through until then, in passes over the whole training set.
        validation: the chosen model on the validation set.
        test: the chosen model on the test set.
        test_last: the model after the last epoch on the test set.
        history: one record per epoch.
        seconds: time by activity: train, policy, evaluate, checkpoint.
        health: whether the method's assumptions held.
        reference: how plain training fares on the test set, where that is known.
    """

    model: nn.Module
    best_epoch: int
    best_full_epochs: float
    validation: GroupReport
    test: GroupReport
    test_last: GroupReport
    history: list[dict[str, Any]]
    seconds: dict[str, float]
    health: Health = field(default_factory=Health)
    reference: GroupReport | None = None


def fit(
    model: nn.Module,
    splits: Splits,
    method: Method | Policy | Objective | None = None,
    settings: Training | None = None,
    *,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
    head: str | None = None,
    reference: GroupReport | None = None,
) -> FitResult:
    """Train `model` on ``splits.train`` and report how every group of ``splits.test`` fares.

    Args:
        model: trained in place; holds the best epoch's weights at the end.
        splits: training, validation and test set.
        method: a policy, an objective, or both; plain training by default.
        settings: how long and how fast.
        run: a directory for config, metrics, checkpoints and results; a run with a checkpoint is continued from it, by
            any number of processes. Of several, only the first's counts.
        listeners: called with every event, after the run's own metrics file, in the first process.
        head: name of the model's last linear layer where it can't be found.
        reference: how plain training fares on the same test set, see `train_plain`; the result's health is then judged
            against it too. A method that only finishes a plain model, as DFR does, is compared with that one by itself.

    Returns:
        The model of the best epoch and its reports.
    """
    expect_kind("model", model, nn.Module, "a torch module", "holdfast.models.build({!r}, input_shape, n_classes)")
    expect_kind(
        "splits",
        splits,
        Splits,
        "three sets of examples, such as holdfast.data.load('digits')",
        "holdfast.data.load({!r})",
    )
    settings = Training() if settings is None else settings
    expect_kind("settings", settings, Training, "a Training, such as Training(epochs=20)")
    accepted = validated(method, settings.planned)
    if reference is not None:
        check_reference(reference, splits.test)
    ranks, whole = Ranks.current(), unwrapped(model)
    assert whole is not None
    if not ranks.is_main:
        run, listeners = None, ()
    loop = _Fit(
        whole, splits, accepted, settings, run=run, listeners=listeners, head=head, ranks=ranks, reference=reference
    )
    try:
        if run is None:
            return loop.go()
        run.lock()
        try:
            return loop.go()
        finally:
            run.unlock()
    finally:
        loop.workers.close()


class _Fit:
    """The state of one call of `fit`."""

    def __init__(
        self,
        model: nn.Module,
        splits: Splits,
        method: Method,
        settings: Training,
        *,
        run: Run | None,
        listeners: Sequence[Listener],
        head: str | None,
        ranks: Ranks,
        reference: GroupReport | None,
    ) -> None:
        self.ranks = ranks
        device = own_device(find_device(settings.device), ranks)
        check_precision(settings.precision, device)
        if settings.pin_memory and device.type == "cpu":
            raise ConfigError("pin_memory is for copies to a GPU and the device is cpu; leave it out, or give a device")
        self.device = device
        self.model = model.to(device)
        if settings.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        augment = AUGMENTATIONS[settings.augment]
        workers = default_workers(splits.train.inputs) if settings.workers is None else settings.workers
        self.workers = ReadingWorkers(workers, augment)
        # One crew for all parts; each is read by it, whoever asks: batches, sweeps, evaluation.
        train, validation, test = map(self.workers.reading, (splits.train, splits.validation, splits.test))
        splits = self.splits = replace(splits, train=train, validation=validation, test=test)
        self.settings = settings
        self.run = run
        self.head = head
        self.listeners = [*([run.log] if run is not None else []), *listeners]
        self.optimizer = build_optimizer(model, settings)
        self.objective = method.objective
        self.finish = method.finish
        self.curator = Curator(
            splits.train,
            method.policy,
            batch_size=settings.step_size,
            seed=settings.seed,
            augment=augment,
            epoch_size=settings.epoch_size,
            device=device,
            head=head,
            validation=splits.validation,
            precision=settings.precision,
            channels_last=settings.channels_last,
            pin_memory=settings.pin_memory,
            workers=0,
            ranks=ranks,
        )
        self.reference = reference
        self.watch = HealthWatch(self.curator.chain)
        self.steps = OptimizerSteps(self.model, self.optimizer, settings, head, ranks)
        self.epochs = settings.epochs + self.curator.chain.warmup_epochs
        self.history: list[dict[str, Any]] = []
        self.seconds = {"train": 0.0, "policy": 0.0, "evaluate": 0.0, "checkpoint": 0.0}
        self.best = BestEpoch()
        self.horizon = 0
        self.resumed = False
        self.losses = RunningMean()
        self.next_tick = 0.0
        self.next_save = 0.0

    def go(self) -> FitResult:
        # Dropout draws from torch's global generator and from no other. It is seeded, and the caller gets his own back.
        with torch_threads(self.settings.threads), torch.random.fork_rng(devices=[]):
            seed_everywhere(derive_seed(self.settings.seed, "fit"), self.device)
            if any(is_lazy(tensor) for tensor in (*self.model.parameters(), *self.model.buffers())):
                self._check_outputs()  # a first pass makes the weights that are to be shared
            self.ranks.share_weights(self.model)
            # Whether there is a run to save, and to continue, is known where the run is.
            self.saves, resumes = self.ranks.from_main(self._looked_for_run)
            if resumes:
                with nullcontext() if self.run is None else understanding(self.run.path):
                    self._load(self.ranks.from_main(self._read_checkpoint))
                self.resumed = True
                known = self.curator.plan  # listeners were told of it before the interruption
            else:
                if self.run is not None:
                    self.run.cut_metrics()
                self._tell("start", {"epochs": self.epochs, "examples": len(self.splits.train)})
                known = None
            if self.curator.clock.epoch < self.epochs:  # else it was stopped before it could report
                self._start(known)
            while self.curator.clock.epoch < self.epochs:
                with self._timed("train"):
                    self._train_epoch()
                self._end_epoch()
            return self._finish()

    def _start(self, known: Plan | None) -> None:
        """Let policies decide on the next epoch, unless they have; tell what is new to listeners.

        Args:
            known: the plan that they were told of before an interruption.
        """
        self._check_outputs()
        with self._timed("policy"), self._going_on():
            self.curator.start(self.model, self.optimizer)
        if known is None:
            self._begin_stage()
        if self.curator.plan is not known:
            self._plan_changed()
        self._tell_records()
        self.next_save = time.monotonic() + self.settings.checkpoint_seconds

    def _looked_for_run(self) -> tuple[bool, bool]:
        return self.run is not None, self.run is not None and self.run.has_checkpoint()

    def _check_outputs(self) -> None:
        """Refuse a model with too few outputs before anything is trained."""
        train = self.splits.train
        few = torch.arange(min(2, len(train)))  # batch norm without running statistics can't take one alone
        inputs = to_device(train.inputs.gather(few), device_of(self.model))
        with evaluating(self.model):
            check_outputs(call(self.model, inputs), train.n_classes)

    def _observed(self, plan: Plan, outcome: Outcome | None = None) -> Observed:
        return Observed(self.splits.train, plan, outcome, self.settings.step_size)

    # ------------------------------------------------------------------------------------------------- an epoch

    def _train_epoch(self) -> None:
        self._set_learning_rate()
        self.model.train()
        curator, model, optimizer, settings = self.curator, self.model, self.optimizer, self.settings
        by_step = settings.schedule == "linear-steps"
        objective = CrossEntropy() if curator.warming_up else self.objective
        several, rank = self.ranks.count > 1, self.ranks.index
        for batch in curator:
            if by_step:
                self._set_learning_rate()
            if several:
                # Dropout differs in every process, and no generator has to be saved from each of them.
                seed_everywhere(derive_seed(settings.seed, "fit", curator.clock.step, rank), self.device)
            loss = self.steps.take(objective, batch, weighted=curator.weighted, clock=curator.clock)
            since = curator.plan
            with self._going_on():
                curator.end_step(model, optimizer)
            self.losses.add(loss, (batch.whole if isinstance(batch, SharedBatch) else batch).labels.shape[0])
            if curator.plan is not since:
                self._plan_changed()
            if curator.chain.between_steps:
                self._tell_records()
            now = time.monotonic()
            if now >= self.next_tick:
                self.next_tick = now + 1 / _STEP_EVENTS_PER_SECOND
                self._check_loss()
                self._tell("step", {"steps_done": curator.clock.step_in_epoch, "steps_left": curator.steps_left})
            if now >= self.next_save:
                self._check_weights()
                self._save()
            self._end_if_asked(self.steps.stop)

    def _end_if_asked(self, stop: bool) -> None:
        """Save and end where a signal asked for it; without a run there is nothing to continue, and training goes on.

        Args:
            stop: whether any process was asked to.

        Raises:
            Interrupted: once the state is saved.
        """
        if stop and self.saves:
            self._save()
            raise Interrupted(interruptions.requested() or signal.SIGTERM)

    def _set_learning_rate(self) -> None:
        clock, settings = self.curator.clock, self.settings
        by_step = settings.schedule == "linear-steps"
        progress = clock.stage_step / self.horizon if by_step else clock.stage_epoch / settings.epochs
        factor = learning_rate_factor(settings, min(progress, 1.0))
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * factor * self.curator.learning_rate_scale

    def _check_loss(self) -> None:
        """Asked a few times a second."""
        check_loss(self.losses.mean(), self.curator.clock, self.settings, self._learning_rate)

    def _check_weights(self) -> None:
        self._check_loss()
        check_weights(self.model, self.curator.clock, self.settings, self._learning_rate)

    @property
    def _learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _end_epoch(self) -> None:
        curator, epoch = self.curator, self.curator.clock.epoch
        self._check_weights()
        loss = self.losses.mean()
        self.ranks.share_buffers(self.model)
        with self._timed("evaluate"):
            report = evaluate(self.model, self.splits.validation, train=self.splits.train, ranks=self.ranks)
        score = criterion(report, self.settings.select_by)
        full_epochs = curator.examples_seen / len(self.splits.train)
        ties = report.accuracy if self.settings.ties == "accuracy" else math.inf
        self.best.offer(score, epoch, full_epochs, self.model, accuracy=ties)
        record = {
            "loss": loss,
            "examples": self.losses.count,
            "full_epochs": full_epochs,
            "learning_rate": self._learning_rate,
            "stage": curator.stage,
            "validation": report.fold().to_json(),
            "score": score,
            "best": self.best.epoch == epoch,
        }
        self.history.append({"epoch": epoch, **record})
        self.losses = RunningMean()
        stage, plan = curator.stage, curator.plan
        with self._timed("policy"), self._going_on():
            curator.end_epoch(self.model, self.optimizer, last=epoch + 1 == self.epochs)
        self._tell("epoch", {**record, "seconds": dict(self.seconds)}, epoch)
        if curator.stage != stage:
            self.best = BestEpoch()
            self._begin_stage()
        if curator.plan is not plan:
            self._plan_changed()
        self._tell_records()
        # Last, so that a run that is killed above repeats the end of this epoch as a whole, and its events with it.
        self._save()
        if self.ranks.count == 1:  # else at the next step, which all processes end after
            self._end_if_asked(interruptions.requested() is not None)

    def _begin_stage(self) -> None:
        """Training starts, or starts again."""
        self.horizon = len(self.curator) * self.settings.epochs
        if not self.curator.warming_up:
            self._prepare_objective()

    def _prepare_objective(self) -> None:
        state, ours = self.ranks.broadcast(torch.get_rng_state()), torch.get_rng_state()
        torch.set_rng_state(state)  # a second network is drawn alike in all processes
        self.objective.prepare(self._grouped(), self.model, lambda model: build_optimizer(model, self.settings))
        if self.ranks.count > 1:
            torch.set_rng_state(ours)

    def _grouped(self) -> Examples:
        """The training set, with the groups that were inferred, where a policy did."""
        inferred = self.curator.plan.groups
        return self.splits.train if inferred is None else self.splits.train.with_groups(inferred)

    def _plan_changed(self) -> None:
        plan, clock = self.curator.plan, self.curator.clock
        active = plan.active
        values = {
            "policies": [member.name for member in self.curator.chain.members],
            "active": len(self.splits.train) if active is None else int(active.sum()),
            "of": len(self.splits.train),
            "slots": sorted(plan.tensors()),
        }
        if (found := self.curator.precision_check.found) is not None:
            values["precision"] = asdict(found)
        if self.splits.train.groups is not None and self.splits.train.n_groups <= FOLDED_ABOVE:
            values["group_shares"] = plan.shares(self.splits.train.groups).tolist()
        self._tell("plan", values)
        if self.ranks.is_main:  # policies live there
            for finding in self.watch.news(self._observed(plan)):
                self._tell("health", finding.to_json())
        if self.run is not None and plan.tensors():
            self.run.save_plan(clock, plan, self.splits.train)
            self.curator.chain.save_artifacts(self.run.path)

    # -------------------------------------------------------------------------------------------------- the end

    def _finish(self) -> FitResult:
        with self._timed("evaluate"):
            predictions = predict(self.model, self.splits.test, ranks=self.ranks)
            test_last = test = GroupReport.of(predictions.predicted, self.splits.test, train=self.splits.train)
        if self.run is not None:
            self.curator.chain.save_artifacts(self.run.path)
        self.model.load_state_dict(self.best.weights)
        if self.reference is None and self._plain_until_finish:
            with self._timed("evaluate"):
                self.reference = evaluate(self.model, self.splits.test, train=self.splits.train, ranks=self.ranks)
        finished = self._run_finish()
        with self._timed("evaluate"):
            validation = evaluate(self.model, self.splits.validation, train=self.splits.train, ranks=self.ranks)
            if self.finish is not None or self.best.epoch != self.epochs - 1:  # else these are the same weights
                predictions = predict(self.model, self.splits.test, ranks=self.ranks)
                test = GroupReport.of(predictions.predicted, self.splits.test, train=self.splits.train)
        outcome = Outcome(test, validation, self.best.epoch, self.history, self.settings.select_by)
        observed = self._observed(self.curator.plan, outcome)
        health = self.ranks.from_main(lambda: self.watch.result(observed, self.reference).to_json())
        result = FitResult(
            self.model,
            self.best.epoch,
            self.best.full_epochs,
            validation,
            test,
            test_last,
            self.history,
            dict(self.seconds),
            Health.from_json(health),
            self.reference,
        )
        scores = {
            "best_epoch": result.best_epoch,
            "best_full_epochs": result.best_full_epochs,
            "full_epochs": self.curator.examples_seen / len(self.splits.train),
            "select_by": self.settings.select_by,
            "validation": validation.fold().to_json(),
            "test": test.fold().to_json(),
            "test_last": test_last.fold().to_json(),
            "seconds": result.seconds,
            "health": health,
        }
        if self.reference is not None:
            scores["reference"] = self.reference.fold().to_json()
        if finished:
            scores["finish"] = finished
        if self.run is not None:
            self.run.save_weights(self.model.state_dict(), self._card())
            self.run.save_predictions(predictions, self.splits.test)
            self.run.save_report(test, "test")
        self._tell("end", scores, self.epochs - 1)
        if self.run is not None:
            self.run.save_results(scores)
        return result

    @property
    def _plain_until_finish(self) -> bool:
        """Whether the last step begins with a plainly trained model, as DFR's does: the yardstick for what it makes."""
        plain = all(isinstance(member, Uniform) for member in self.curator.chain.members)
        return self.finish is not None and plain and type(self.objective) is CrossEntropy

    def _run_finish(self) -> dict[str, Any]:
        if self.finish is None:
            return {}
        splits = replace(self.splits, train=self._grouped())
        finish, trained = self.finish, Trained(self.model, splits, self.settings.seed, self.head)
        with self._timed("policy"):
            said = self.ranks.from_main(lambda: _alone(lambda: finish(trained)))
            self.ranks.share_weights(self.model)
        return said

    def _card(self) -> ModelCard:
        train = self.splits.train
        made = {"data": self.splits.name, "epoch": self.best.epoch, "select_by": self.settings.select_by}
        return ModelCard(facts_of_inputs(train.inputs), train.class_names, made=made)

    # ------------------------------------------------------------------------------------------------ the state

    def _save(self) -> None:
        self.next_save = time.monotonic() + self.settings.checkpoint_seconds
        if self.run is None:
            return
        with self._timed("checkpoint"):
            self.run.save_checkpoint(
                {
                    "model": dict(self.model.state_dict()),
                    "optimizer": self.optimizer.state_dict(),
                    "scaler": self.steps.state_dict(),
                    "objective": {} if self.curator.warming_up else self.objective.state_dict(),
                    "curator": self.curator.state_dict(),
                    "generator": torch.get_rng_state(),
                    "horizon": self.horizon,
                    "losses": self.losses.state_dict(),
                    "best": self.best.state_dict(),
                    "seconds": self.seconds,
                    "metrics": self.run.metrics_mark(),
                }
            )

    def _read_checkpoint(self) -> dict[str, Any]:
        assert self.run is not None
        state = self.run.load_checkpoint()
        # Events that were logged after this checkpoint will be logged again.
        self.run.cut_metrics(state["metrics"] if "metrics" in state else state["metrics_size"])
        events = self.run.metrics()
        history = state["history"] if "history" in state else _told(events, "epoch", without=("seconds",))
        return {**state, "history": history, "records": _told(events, "record", without=("epoch",))}

    def _load(self, state: dict[str, Any]) -> None:
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise ConfigError(
                f"the checkpoint{f' in {self.run.path}' if self.run is not None else ''} is of another model; resume "
                "with the model it was made with"
            ) from error
        self.optimizer.load_state_dict(state["optimizer"])
        _lay_out_as_weights(self.optimizer)
        self.steps.load_state_dict(state.get("scaler", {}))
        self.curator.load_state_dict(state["curator"])
        self.curator.chain.recall(state["records"])
        if self.ranks.is_main:
            self.watch.news(self._observed(self.curator.plan))  # said before the interruption
        self.horizon = state["horizon"]
        # After the curator, whose plan may hold the groups that the objective is prepared for. Before the generator: an
        # objective with a network of its own draws its first weights.
        if not self.curator.warming_up:
            self._prepare_objective()
            self.objective.load_state_dict(state["objective"])
        torch.set_rng_state(state["generator"])
        self.losses = RunningMean.of_state(state["losses"])
        self.best = BestEpoch.of_state(state["best"])
        self.seconds, self.history = state["seconds"], state["history"]

    def _going_on(self) -> AbstractContextManager[None]:
        """Around decisions: in a run that goes on a policy may fail because its checkpoint says what no run writes."""
        if not self.resumed or self.run is None:
            return nullcontext()
        return understanding(self.run.path, ", or a policy or the model fails by itself")

    def _tell_records(self) -> None:
        """Before anything is saved: a checkpoint only says how many records there were."""
        for record in self.curator.chain.new_records():
            self._tell("record", record)

    def _tell(self, kind: EventKind, values: dict[str, Any], epoch: int | None = None) -> None:
        clock = self.curator.clock
        event = Event(kind, clock.epoch if epoch is None else epoch, clock.step, values)
        for listener in self.listeners:
            listener(event)

    @contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] += time.perf_counter() - started


def _alone(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    with alone():
        return work()


def _told(events: Sequence[dict[str, Any]], kind: EventKind, *, without: Sequence[str]) -> list[dict[str, Any]]:
    """What the run's events of a kind said."""
    left_out = {"event", "step", *without}
    return [{key: event[key] for key in event if key not in left_out} for event in events if event["event"] == kind]


def _lay_out_as_weights(optimizer: torch.optim.Optimizer) -> None:
    """What an optimizer remembers of a weight lies in memory as the weight does, as while it trains.

    A file has rows one behind the other. Where weights lie otherwise (channels last), a step over two layouts goes
    number by number instead of by vectors, which rounds otherwise: a resumed run would end with other bits.
    """
    for weight, remembered in optimizer.state.items():
        for name, value in remembered.items():
            if isinstance(value, torch.Tensor) and value.shape == weight.shape:
                remembered[name] = torch.empty_like(weight, dtype=value.dtype, device=value.device).copy_(value)
