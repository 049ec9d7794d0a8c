"""Tries methods for a few epochs each and chooses the one that is clearly better than plain training.

All tries are judged on the validation set, example by example beside plain training (paired bootstrap), and as the
training that follows chooses its epoch, by that set: one half chooses and the other is judged, then the other way
round. After its last epoch a model often favours a class by chance, most of all with wrong labels. A method that learns
from validation data, as DFR does, is trained twice, with one half each. The test set is not handed to any of this.

The best of several tries looks better than it is: of five that change nothing, one has an 80 % interval above zero in
four of ten cases. So the intervals are those of all comparisons together (Bonferroni). Where no groups are known, only
classes can be compared, and a method that wins in the worst class what it loses in the others has moved a threshold or,
with wrong labels, unlearned: there the mean over the classes must not fall.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.auto.candidates import CANDIDATES, SENTENCES, Knowledge, criterion_for
from holdfast.auto.knowledge import knowledge_of
from holdfast.auto.options import Auto
from holdfast.auto.record import Choice, Try
from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning
from holdfast.methods import METHODS, build_method
from holdfast.streams import torch_stream
from holdfast.training.evaluation.criteria import criterion
from holdfast.training.evaluation.evaluation import predict
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.evaluation.scores import accuracy_of
from holdfast.training.events import Event
from holdfast.training.fitting import FitResult, fit
from holdfast.training.method import Method, validated
from holdfast.training.policy import Policy
from holdfast.training.run import Run, understanding
from holdfast.training.settings import Training

PLAIN = "erm"

#: A try may go through so many times the examples of plain training in its epochs, and is given up beyond.
_LONGEST = 4.0


class _TooLongError(HoldfastError):
    """A try that costs more than its share."""


@dataclass(frozen=True, eq=False)
class _Tried:
    record: Try
    report: GroupReport | None = None


def choose(
    new_model: Callable[[], nn.Module],
    splits: Splits,
    settings: Training,
    auto: Auto | None = None,
    *,
    build: Callable[[str], Policy] = build_method,
    head: str | None = None,
    listener: Callable[[Try], None] | None = None,
) -> Choice:
    """Which method to train with.

    Args:
        new_model: makes the model, with the same start each time.
        splits: the data; its test set is not looked at.
        settings: of the training that is to follow.
        auto: effort, tries and caution.
        build: makes a method by name; with its defaults if not given.
        head: name of the model's last linear layer where it can't be found.
        listener: told of each try.

    Returns:
        The choice with its reasons.

    Raises:
        ConfigError: if plain training itself can't be tried, or a method is named that needs what is not known.
    """
    auto, started = auto or Auto(), time.process_time()
    known = knowledge_of(splits)
    names = auto.tries or CANDIDATES[known]
    check_names(names, known, "auto", "--auto.tries")
    names = (PLAIN, *(name for name in names if name != PLAIN))
    epochs = max(1, round(auto.effort * settings.epochs / len(names)))
    by: Any = criterion_for(known)
    level = level_of_each(auto.level, len(names) - 1)
    bench = _Bench(build, new_model, splits, replace(settings, select_by=by), epochs, level, head)
    plain: GroupReport | None = None
    tries = []
    for name in names:
        tried = bench.tried(name, plain)
        if plain is None:
            if tried.report is None:
                raise ConfigError(f"auto can't try plain training: {tried.record.refused}")
            plain = tried.report
        tries.append(tried.record)
        if listener is not None:
            listener(tried.record)
    chosen = best_of(tries, known)
    why = reasons(tries, chosen, known, auto.level)
    return Choice(chosen.method, known, why, tuple(tries), epochs, time.process_time() - started)


def kept_or_chosen(run: Run | None, choose_now: Callable[[], Choice]) -> Choice:
    """The choice that a run keeps, or a new one, which it then keeps: a run that is continued goes on with its method.

    Args:
        run: the run; None where nothing is kept.
        choose_now: chooses.

    Raises:
        CheckpointError: if the run's choice is damaged.
    """
    if run is not None and (stored := run.choice) is not None:
        with understanding(run.path):
            return Choice.from_json(stored)
    choice = choose_now()
    if run is not None:
        run.keep_choice(choice.to_json())
    return choice


def level_of_each(level: float, comparisons: int) -> float:
    """The level of one interval of several that shall all hold at once with probability `level` (Bonferroni).

    Example:
        >>> round(level_of_each(0.8, 5), 3)
        0.96
    """
    return 1 - (1 - level) / max(comparisons, 1)


def best_of(tries: Sequence[Try], known: Knowledge = "validation") -> Try:
    """The try with the largest gain that is clear and whose health did not fail; else the first, plain training.

    Args:
        tries: plain training first.
        known: what is known of the groups; where it is nothing, the mean over classes must not fall.

    Example:
        >>> tries = [Try("erm", 0.5), Try("jtt", 0.6, gain=0.1, low=-0.01), Try("spare", 0.58, gain=0.08, low=0.02)]
        >>> best_of(tries).method
        'spare'
    """
    return max(
        (one for one in tries[1:] if not _against(one, tries[0], known)), key=lambda one: one.gain, default=tries[0]
    )


def _against(one: Try, plain: Try, known: Knowledge) -> str:
    """What speaks against choosing a try, as the end of a sentence; empty where nothing does."""
    if one.refused:
        return "it could not be tried"
    if one.low <= 0:
        return f"its interval begins at {100 * one.low:+.1f}"
    if one.health == "failed":
        return "its health failed"
    if known == "none" and one.mean < plain.mean:
        return f"the mean over classes falls by {100 * (plain.mean - one.mean):.1f}"
    return ""


def reasons(tries: Sequence[Try], chosen: Try, known: Knowledge, level: float) -> str:
    """Why, in sentences for the user."""
    part = "class" if known == "none" else "group"
    plain, judged = tries[0], [one for one in tries if not one.refused]
    begin = f"{SENTENCES[known][:1].upper()}{SENTENCES[known][1:]}."
    names = ", ".join(one.method for one in judged)
    at_once = f"the {100 * level:.0f} % interval of the difference, for all methods at once,"
    if chosen is not plain:
        return (
            f"{begin} Of {names}, tried briefly, {chosen.method} has the largest gain on the validation set's worst "
            f"{part}: {100 * chosen.score:.1f} % where plain training has {100 * plain.score:.1f} %, and {at_once} "
            f"begins at {100 * chosen.low:+.1f} points."
        )
    closest = max(judged[1:], key=lambda one: one.gain, default=None)
    if closest is None:
        return f"{begin} No other method could be tried, so plain training is used."
    return (
        f"{begin} Of {names}, tried briefly, none is clearly better than plain training on the validation set's worst "
        f"{part}: the largest gain is {100 * closest.gain:+.1f} points ({closest.method}), and "
        f"{_against(closest, plain, known)}; the interval is the {100 * level:.0f} % one for all methods at once."
    )


def check_names(names: Sequence[str], known: Knowledge, who: str, option: str) -> None:
    """Refuse methods that need groups which the user did not give.

    Args:
        names: the methods.
        known: what is known of the groups.
        who: who would try them, for the message.
        option: that names them.

    Raises:
        ConfigError: if there is no such method, or it needs what is not known.
    """
    for name in names:
        METHODS.expect(name)
        needs = METHODS[name].needs_groups_of
        if (needs == "train" and known != "train") or (needs == "validation" and known == "none"):
            raise ConfigError(
                f"{who} can't try {name}, which needs {'training' if needs == 'train' else 'validation'} groups, and "
                f"{SENTENCES[known].split(', so')[0]}; leave it out of {option}, or give --attribute"
            )


@dataclass(frozen=True, eq=False)
class _Bench:
    """What all tries share.

    Attributes:
        build: makes a method by name.
        new_model: makes the model.
        splits: the data; the test set is not looked at.
        settings: of the training that is to follow.
        epochs: of a try.
        level: of the interval of one gain.
        head: name of the model's last linear layer where it can't be found.
    """

    build: Callable[[str], Policy]
    new_model: Callable[[], nn.Module]
    splits: Splits
    settings: Training
    epochs: int
    level: float
    head: str | None

    def tried(self, name: str, plain: GroupReport | None) -> _Tried:
        """Train with a method and compare it with plain training, or say why it can't be tried."""
        started = time.process_time()
        try:
            policy = self.build(name)
            left = self.epochs - policy.warmup_epochs
            if left < 1:
                raise ConfigError(
                    f"{name} adds {policy.warmup_epochs} epochs of its own and a try has {self.epochs}; raise "
                    "--auto.effort"
                )
            short = replace(self.settings, epochs=left)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HoldfastWarning)  # the training itself warns
                report, health = self._judged(name, validated(policy, short.planned), short)
        except HoldfastError as refusal:
            return _Tried(Try(name, refused=str(refusal), seconds=time.process_time() - started))
        worst = None if plain is None else report.compare(plain, level=self.level).worst
        gain, low = (0.0, 0.0) if worst is None else (worst.value, worst.low)
        seconds = time.process_time() - started
        classes = [accuracy_of(score) for score in report.by_class if score.count]
        mean = sum(classes) / len(classes)
        return _Tried(Try(name, report.worst_accuracy, report.accuracy, mean, gain, low, health, seconds), report)

    def _judged(self, name: str, method: Method, settings: Training) -> tuple[GroupReport, str]:
        """A report on the whole validation set by models that did not learn from what they are judged on."""
        validation = self.splits.validation
        members = getattr(method.policy, "members", (method.policy,))
        halves = halved(validation, settings.seed)
        if method.finish is None and all(member.needs_groups_of != "validation" for member in members):
            epochs = list[Tensor]()
            result = self._fit(method, validation, validation, settings, epochs)
            chosen = cross_chosen(epochs, validation, halves, settings.select_by)
            return GroupReport.of(chosen, validation), result.health.verdict
        predicted, verdicts = torch.empty(len(validation), dtype=torch.int64), list[str]()
        for own, other in (halves, halves[::-1]):
            fresh, judged = validated(self.build(name), settings.planned), validation.subset(other)
            result = self._fit(fresh, validation.subset(own), judged, settings)
            predicted[other] = predict(result.model, judged).predicted
            verdicts.append(result.health.verdict)
        return GroupReport.of(predicted, validation), max(verdicts, key=("ok", "doubtful", "failed").index)

    def _fit(
        self,
        method: Method,
        validation: Examples,
        judged: Examples,
        settings: Training,
        epochs: list[Tensor] | None = None,
    ) -> FitResult:
        """Train; `epochs` gets what is predicted after every epoch since training last began."""
        parts = Splits(self.splits.name, self.splits.train, validation, judged)
        per_epoch = max(1, len(self.splits.train) // settings.step_size)
        model, stage = self.new_model(), 0

        def watch(event: Event) -> None:
            """A method that repeats examples is given up as soon as an epoch is seen to be too long."""
            nonlocal stage
            if event.kind == "epoch" and epochs is not None:
                if event.values["stage"] != stage:
                    stage = event.values["stage"]
                    epochs.clear()
                epochs.append(predict(model, judged).predicted)
            if event.kind == "step":
                steps = event.values["steps_done"] + event.values["steps_left"]
                if steps > _LONGEST * per_epoch + 1:
                    raise _TooLongError(
                        f"its epochs are {steps / per_epoch:.0f} times as long as those of plain training, more than "
                        f"the {_LONGEST:g} times that a try may cost; name the method to train with it all the same"
                    )

        return fit(model, parts, method, settings, listeners=[watch], head=self.head)


def cross_chosen(epochs: Sequence[Tensor], examples: Examples, halves: tuple[Tensor, Tensor], by: str) -> Tensor:
    """What is predicted of each half after the epoch that is best on the other half, the first of equals.

    Args:
        epochs: the predictions after each epoch, int64 of shape (n,).
        examples: the n examples.
        halves: positions in them.
        by: the criterion.
    """
    predicted = torch.empty(len(examples), dtype=torch.int64)
    for own, other in (halves, halves[::-1]):
        part = examples.subset(own)
        scores = [criterion(GroupReport.of(one[own], part), by) for one in epochs]
        predicted[other] = epochs[scores.index(max(scores))][other]
    return predicted


def halved(examples: Examples, seed: int) -> tuple[Tensor, Tensor]:
    """Two halves in which every group, or every class where there are none, has as many examples, give or take one."""
    parts = examples.labels if examples.groups is None else examples.groups
    order = torch.randperm(len(examples), generator=torch_stream(seed, "auto", "halves"))
    order = order[torch.sort(parts[order], stable=True).indices]
    return order[0::2].sort().values, order[1::2].sort().values
