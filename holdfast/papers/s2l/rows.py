"""The rows of S2L's tables: what a training on everything knows of each example, and the subsets that follow."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from holdfast.finetuning import (
    FineTuningSettings,
    TokenPairs,
    Trajectories,
    TrajectoryRecorder,
    facility_locations,
    fine_tune,
    hidden_states,
    high_learnability,
    least_confidence,
    middle_perplexity,
    random_subset,
    response_scores,
    s2l_select,
    source_balanced_random,
)
from holdfast.finetuning.language_models.fine_tuning import Progress
from holdfast.finetuning.selection.baselines import longest
from holdfast.finetuning.selection.scores import Layer, ResponseScores
from holdfast.papers.engine.pins import options
from holdfast.papers.engine.witness import tell

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

POINTS = 12
#: What all trainings share and no table varies, whatever the library's defaults are.
HOW: Mapping[str, Any] = {"weight_decay": 0.0, "warmup": 0.03, "max_norm": 1.0}
_EARLY = 1000 / 6141  # of a training: where the document takes its early reference


@dataclass(frozen=True, eq=False)
class Beginning:
    """The first sixth of a training on everything: what the model made of the examples before and after it.

    Attributes:
        before: scores under the initial model.
        early: scores after a sixth of the steps.
        states: hidden states, by time (``early``, and ``end`` of a whole course) and ``first`` or ``last`` layer.
    """

    before: ResponseScores
    early: ResponseScores
    states: Mapping[tuple[str, Layer], Floats]


@dataclass(frozen=True, eq=False)
class Course(Beginning):
    """A whole training on everything.

    Attributes:
        end: scores at the end.
        trajectories: losses along the way.
    """

    end: ResponseScores
    trajectories: Trajectories


def tell_loss(progress: Progress) -> None:
    """Tells the witness the loss of every step; to be given to `fine_tune`."""
    if progress.doing == "training":
        tell("loss", progress.loss)


def tell_weights(model: nn.Module) -> None:
    """Tells the witness the norm of all weights, and no more of them.

    AdamW makes steps of full length out of gradients that are nothing but rounding, so single weights may differ.
    """
    norms = [part.detach().double().norm() for part in model.parameters()]
    tell("weights", float(torch.stack(norms).norm()))


class _Enough(Exception):  # noqa: N818 - nothing is wrong
    """Ends a training of which only the beginning is wanted."""


def begin(model: nn.Module, tokens: TokenPairs, settings: FineTuningSettings) -> Beginning:
    """Train a model on everything as far as the early reference, where the rest would take hours.

    Args:
        model: trained in place.
        tokens: the examples.
        settings: of the whole training.
    """
    first, before = _first(_steps(settings, tokens)), response_scores(model, tokens)

    def watch(progress: Progress) -> None:
        if progress.doing == "training" and progress.done == first:
            raise _Enough

    with contextlib.suppress(_Enough):
        fine_tune(model, tokens, settings, progress=watch)
    return Beginning(before, response_scores(model, tokens), {("early", "last"): hidden_states(model, tokens, "last")})


def follow(
    model: nn.Module, tokens: TokenPairs, settings: FineTuningSettings, *, early: Callable[[], None] = lambda: None
) -> Course:
    """Train a model on everything and look at all examples on the way.

    Args:
        model: trained in place.
        tokens: the examples.
        settings: of the training.
        early: called where the early reference is taken.
    """
    steps = _steps(settings, tokens)
    first = _first(steps)
    seen: dict[str, Any] = {"before": response_scores(model, tokens)}
    states = dict[tuple[str, Layer], Floats]()

    def look(time: str) -> None:
        seen[time] = response_scores(model, tokens)
        for layer in get_args(Layer):
            states[time, layer] = hidden_states(model, tokens, layer)

    def watch(progress: Progress) -> None:
        if progress.doing == "training" and progress.done == first:
            look("early")
            early()

    trajectories = _record(model, tokens, settings, {"every": max(1, steps // POINTS)}, watch=watch, trained_on=tokens)
    look("end")
    return Course(seen["before"], seen["early"], states, seen["end"], trajectories)


def record(
    model: nn.Module,
    tokens: TokenPairs,
    settings: FineTuningSettings,
    points: int,
    *,
    trained_on: TokenPairs | None = None,
) -> Trajectories:
    """Train a model and look at its losses alone, at so many points of equal distance.

    Args:
        model: trained in place.
        tokens: the examples.
        settings: of the training.
        points: how many, the last one at the end.
        trained_on: what it is trained on instead of everything.
    """
    steps = _steps(settings, trained_on or tokens)
    when = {"every": None, "steps": [round(steps * place / points) for place in range(1, points + 1)]}
    return _record(model, tokens, settings, when, watch=lambda progress: None, trained_on=trained_on or tokens)


def _record(
    model: nn.Module,
    tokens: TokenPairs,
    settings: FineTuningSettings,
    when: Mapping[str, Any],
    *,
    watch: Callable[[Progress], None],
    trained_on: TokenPairs,
) -> Trajectories:
    with tempfile.TemporaryDirectory() as folder:
        recorder = TrajectoryRecorder(Path(folder), tokens, **options(TrajectoryRecorder, when))
        fine_tune(model, trained_on, settings, recorder=recorder, progress=watch)
        return recorder.trajectories()


def _steps(settings: FineTuningSettings, tokens: TokenPairs) -> int:
    """Steps of a training on everything that can be learned."""
    return settings.steps_for(int((~tokens.undefined).sum()))


def _first(steps: int) -> int:
    """Steps before the early reference."""
    return max(1, round(_EARLY * steps))


def choose(
    method: str,
    budget: int,
    *,
    sources: Ints,
    undefined: Mask,
    proxy: Callable[[], Trajectories],
    target: Callable[[], Beginning],
    k: int,
    smallest: int = 1,
    lengths: Ints | None = None,
    seed: int = 0,
) -> Ints:
    """The subset that a row trains on.

    Args:
        method: the row.
        budget: how many examples.
        sources: of all examples.
        undefined: examples of which the target sees no response; no row chooses them.
        proxy: gives the proxy's trajectories, where they are needed.
        target: gives the target's training on everything, where it is needed; rows at the end need all of it.
        k: clusters of S2L.
        smallest: the smallest cluster that S2L draws from.
        lengths: tokens of each response, for the row that takes the longest.
        seed: names the random streams.
    """
    usable = ~undefined

    def s2l(curves: Trajectories, *, by_source: bool, **more: Any) -> Ints:
        tell("curves", torch.from_numpy(curves.losses))
        given = {
            "k": k,
            "sources": sources if by_source else None,
            "undefined": undefined | curves.undefined,
            "smallest": smallest,
            "seed": seed,
            **more,
        }
        return s2l_select(curves.losses, budget, **options(s2l_select, given)).positions

    def reference() -> Beginning:
        course = target()
        tell(
            "early",
            [torch.from_numpy(part) for part in (course.before.loss, course.early.loss, course.early.confidence)],
        )
        return course

    def whole() -> Course:
        course = reference()
        assert isinstance(course, Course)
        tell("end", [torch.from_numpy(part) for part in (course.end.loss, course.end.confidence)])
        return course

    ways: dict[str, Callable[[], Ints]] = {
        "full": lambda: np.flatnonzero(usable),
        "random": lambda: random_subset(usable, budget, seed=seed),
        "source-balanced random": lambda: source_balanced_random(sources, usable, budget, seed=seed),
        "longest": lambda: longest(_given(lengths), usable, budget),
        "s2l": lambda: s2l(proxy(), by_source=False),
        "s2l, far start": lambda: s2l(proxy(), by_source=False, start="k-means++"),
        "s2l by source, far start": lambda: s2l(proxy(), by_source=True, start="k-means++"),
        "s2l by source": lambda: s2l(proxy(), by_source=True),
        "last loss": lambda: s2l(proxy().at([-1]), by_source=False),
        "least confidence, early": lambda: least_confidence(reference().early.confidence, usable, budget),
        "least confidence": lambda: least_confidence(whole().end.confidence, usable, budget),
        "middle perplexity, early": lambda: middle_perplexity(reference().early.loss, usable, budget),
        "middle perplexity": lambda: middle_perplexity(whole().end.loss, usable, budget),
        "learnability, early": lambda: high_learnability(
            reference().before.loss, reference().early.loss, usable, budget
        ),
        "learnability": lambda: high_learnability(whole().before.loss, whole().end.loss, usable, budget),
        "facility locations, early": lambda: _locations(reference(), "early", sources, usable, budget),
        "facility locations": lambda: _locations(whole(), "end", sources, usable, budget),
    }
    chosen = ways[method]()
    tell("chosen", torch.from_numpy(chosen))
    return chosen


def _given(lengths: Ints | None) -> Ints:
    assert lengths is not None
    return lengths


def _locations(target: Beginning, time: str, sources: Ints, usable: Mask, budget: int) -> Ints:
    return facility_locations(target.states[time, "last"], sources, usable, budget, equal_sources=False)
