"""From prompts and responses to loss trajectories: fine-tune a small model once, and look at everything on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError
from holdfast.finetuning.language_models.fine_tuning import FineTuningSettings, Progress, fine_tune
from holdfast.finetuning.language_models.models import LanguageModel
from holdfast.finetuning.language_models.processes import ALONE, Processes
from holdfast.finetuning.language_models.templates import Template
from holdfast.finetuning.language_models.tokens import TokenPairs, tokenize
from holdfast.finetuning.selection.analysis import selection_cost
from holdfast.finetuning.trajectories import Trajectories, TrajectoryRecorder
from holdfast.streams import numpy_stream

#: Points of a trajectory, and steps between them at most, where nothing else is asked for.
POINTS, MOST_STEPS = 12, 500


def record_trajectories(
    data: Instructions,
    proxy: LanguageModel,
    folder: Path,
    settings: FineTuningSettings | None = None,
    *,
    template: str = "auto",
    max_length: int = 512,
    every: int | None = None,
    trained: int | None = None,
    processes: Processes = ALONE,
    progress: Callable[[Progress], None] | None = None,
    ready: Callable[[NDArray[np.bool_]], None] | None = None,
    skip_bad: bool = False,
) -> Trajectories:
    """Fine-tune a small model and record its loss on every example along the way.

    Args:
        data: prompts and responses.
        proxy: the small model, which is trained in place, and its tokenizer.
        folder: where points and the last checkpoint are kept; a killed run continues with what is there, given the
            model with its initial weights again.
        settings: of the fine-tuning.
        template: what is put around prompts, see `Template.named`.
        max_length: examples are cut to so many tokens.
        every: steps between two points; by default 500, or a twelfth of the training where that is less.
        trained: train on so many random examples only; the losses of all are recorded.
        processes: those that share the work.
        progress: told how far it is.
        ready: told which examples have no response token left, once all that was asked for makes sense and before
            anything is written; what it raises ends the run.
        skip_bad: conversations that the tokenizer's chat template refuses have no loss, instead of ending the run.

    Returns:
        The trajectories; example ids are positions in `data`. They know how long training and recording took.

    Raises:
        ConfigError: if the training is too short for a point, examples are too long for the model, or the folder
            belongs to another run.
        DataError: if no example has a response token left.
    """
    settings = settings or FineTuningSettings()
    form = Template.named(template, proxy.tokenizer)
    tokens = tokenize(data, proxy.tokenizer, form, max_length=max_length, skip_bad=skip_bad)
    longest = int(tokens.lengths.max())
    if proxy.positions is not None and longest > proxy.positions:
        raise ConfigError(
            f"the proxy has learned {proxy.positions} positions and an example has {longest} tokens; cut examples with "
            f"--max-length {proxy.positions}, or take a proxy that computes its positions"
        )
    trained_on = _trained_on(tokens, trained, settings.seed)
    total = settings.steps_for(len(trained_on))
    if total < 2:
        raise ConfigError(
            f"the proxy's training has {total} step, and its rate is 0 in the first of a warm-up, so nothing would be "
            "learned; train for more epochs, or with a smaller --batch-size"
        )
    every = every if every is not None else max(1, min(MOST_STEPS, total // POINTS))
    if every > total:
        raise ConfigError(
            f"losses are to be recorded every {every} steps and the training has {total}; record more often, or train "
            "longer"
        )
    if ready is not None:
        ready(tokens.undefined)
    key = {
        "data": data.fingerprint,
        "model": proxy.fingerprint,
        "template": template,
        "max_length": max_length,
        "every": every,
        **asdict(settings),
        "trained": trained,
    }
    first = next(step for step in range(1, total + 1) if settings.rate(step - 1, total) > 0)
    recorder = TrajectoryRecorder(folder / "points", tokens, every=every, first=first, key=key, processes=processes)
    fine_tune(
        proxy.model,
        trained_on,
        settings,
        recorder=recorder,
        checkpoint=folder / "checkpoint.safetensors",
        processes=processes,
        progress=progress,
    )
    return _compared(recorder.trajectories(), len(trained_on), settings.batch_size)


def _compared(trajectories: Trajectories, trained: int, batch_size: int) -> Trajectories:
    """The same trajectories, whose recording is beside what the cost model says."""
    if trajectories.seconds is None:
        return trajectories
    epochs, rest = divmod(trajectories.steps[-1], math.ceil(trained / batch_size))
    passes = (epochs * trained + rest * batch_size) / len(trajectories)
    cost = selection_cost(1, 1, epochs=1, points=len(trajectories.steps), trained=passes)
    by_model = trajectories.seconds.training * cost.recording / cost.training
    return replace(trajectories, seconds=replace(trajectories.seconds, recording_by_model=by_model))


def _trained_on(tokens: TokenPairs, count: int | None, seed: int) -> TokenPairs:
    usable = np.flatnonzero(~tokens.undefined)
    if count is None:
        return tokens.part(usable)
    if not 1 <= count <= len(usable):
        raise ConfigError(f"the proxy is to be trained on {count} examples and there are {len(usable)}")
    return tokens.part(np.sort(numpy_stream(seed, "trained on").choice(usable, count, replace=False)))
