"""From prompts and responses to loss trajectories: fine-tune a small model once, and look at everything on the way."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.data.readers.instructions import Instructions
from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.finetuning.estimates import Estimate, estimate
from holdfast.finetuning.language_models.fine_tuning import FineTuningSettings, Progress, fine_tune
from holdfast.finetuning.language_models.losses import Floats
from holdfast.finetuning.language_models.models import LanguageModel
from holdfast.finetuning.language_models.templates import Template
from holdfast.finetuning.language_models.tokens import TokenPairs, tokenize
from holdfast.finetuning.selection.analysis import selection_cost
from holdfast.finetuning.selection.scores import response_scores
from holdfast.finetuning.suggestions import suggest
from holdfast.finetuning.trajectories import Trajectories, TrajectoryRecorder
from holdfast.streams import numpy_stream
from holdfast.training.ranks import ALONE, Ranks

#: Steps between two checkpoints at most.
_SAVED = 500


def record_trajectories(
    data: Instructions,
    proxy: LanguageModel,
    folder: Path,
    settings: FineTuningSettings | None = None,
    *,
    template: str = "auto",
    max_length: int = 512,
    every: int | None = None,
    points: int | None = None,
    trained: int | None = None,
    processes: Ranks = ALONE,
    progress: Callable[[Progress], None] | None = None,
    ready: Callable[[NDArray[np.bool_]], None] | None = None,
    estimated: Callable[[Estimate], None] | None = None,
    by_memory: bool = False,
    skip_bad: bool = False,
    tokens_in: Path | None = None,
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
        every: steps between two points.
        points: how many instead, at equal distances, the last one at the end; by default as many as
            `holdfast.finetuning.suggestions.suggest` finds affordable: four for three epochs on everything.
        trained: train on so many random examples only; the losses of all are recorded.
        processes: those that share the work.
        progress: told how far it is.
        ready: told which examples have no response token left, once all that was asked for makes sense and before
            anything is written; what it raises ends the run. By default there is a warning if there are any, unless
            they may be those that `skip_bad` passes over.
        estimated: told what it will cost, before anything is begun; measuring that takes two mini-batches.
        by_memory: give a pass as many tokens as fit into the memory that is free; else as the settings say.
        skip_bad: conversations that the tokenizer's chat template refuses have no loss, instead of ending the run.
        tokens_in: leave token ids on disk in this folder, each process tokenising its share.

    Returns:
        The trajectories; example ids are positions in `data`. They know how long training and recording took.

    Raises:
        ConfigError: if the training is too short for a point, examples are too long for the model, or the folder
            belongs to another run.
        DataError: if no example has a response token left.
    """
    settings = settings or FineTuningSettings()
    tokens, trained_on = _tokens(
        data,
        proxy,
        settings,
        template=template,
        max_length=max_length,
        trained=trained,
        skip_bad=skip_bad,
        tokens_in=tokens_in,
        processes=processes,
    )
    total = settings.steps_for(len(trained_on))
    first = next(step for step in range(1, total + 1) if settings.rate(step - 1, total) > 0)
    if every is not None and every > total:
        raise ConfigError(
            f"losses are to be recorded every {every} steps and the training has {total}; record more often, or train "
            "longer"
        )
    if every is not None and every < 1:
        raise ConfigError(f"losses are recorded every {every} steps; give at least 1")
    if every is None and points is None:
        usual = suggest(len(data), len(data), trained=len(trained_on), epochs=settings.epochs).points.value
        points = min(usual, total - first + 1)
    schedule = _schedule(total, first, every, points)
    settings = _priced(
        proxy, tokens, trained_on, settings, len(schedule), processes=processes, told=estimated, by_memory=by_memory
    )
    if ready is not None or not skip_bad:
        (ready or _warn_of_lost)(tokens.undefined)
    how = {name: value for name, value in asdict(settings).items() if name != "most_tokens"}  # it changes rounding only
    key = {
        "data": data.fingerprint,
        "model": proxy.fingerprint,
        "template": template,
        "max_length": max_length,
        "points": list(schedule),
        **how,
        "trained": trained,
        "unigram": round(tokens.unigram_entropy, 6),
    }
    recorder = TrajectoryRecorder(
        folder / "points", tokens, steps=schedule, key=key, processes=processes, precision=settings.precision
    )
    fine_tune(
        proxy.model,
        trained_on,
        settings,
        recorder=recorder,
        checkpoint=folder / "checkpoint.safetensors",
        save_every=max(1, min(_SAVED, total // 12)),
        processes=processes,
        progress=progress,
    )
    return _compared(recorder.trajectories(), len(trained_on), settings.batch_size)


def _warn_of_lost(undefined: NDArray[np.bool_]) -> None:
    """Say that examples can't be chosen, which a selection would only show by what it lacks."""
    if lost := int(undefined.sum()):
        warnings.warn(
            f"{lost:,} of {len(undefined):,} examples have no room for their response and can't be chosen; raise "
            "max_length",
            HoldfastWarning,
            stacklevel=3,
        )


def _schedule(total: int, first: int, every: int | None, points: int | None) -> Sequence[int]:
    """The steps after which losses are recorded; the untrained model is no point.

    Raises:
        ConfigError: if there are more points than steps.
    """
    if every is not None:
        return [step for step in range(every, total + 1, every) if step >= first]
    assert points is not None
    if not 1 <= points <= total - first + 1:
        raise ConfigError(
            f"{points} points are to be recorded and the training has {total - first + 1} steps that change the proxy; "
            "record fewer, or train longer"
        )
    return sorted({max(first, round(total * place / points)) for place in range(1, points + 1)})


def train_reference(
    data: Instructions,
    proxy: LanguageModel,
    folder: Path,
    settings: FineTuningSettings | None = None,
    *,
    template: str = "auto",
    max_length: int = 512,
    trained: int | None = None,
    scored_before: bool = False,
    processes: Ranks = ALONE,
    progress: Callable[[Progress], None] | None = None,
    ready: Callable[[NDArray[np.bool_]], None] | None = None,
    estimated: Callable[[Estimate], None] | None = None,
    by_memory: bool = False,
    skip_bad: bool = False,
    tokens_in: Path | None = None,
) -> tuple[TokenPairs, Floats | None]:
    """Fine-tune a model without recording: the reference of the ways that S2L is compared with.

    Args:
        data: prompts and responses.
        proxy: the model, which is trained in place, and its tokenizer.
        folder: where the last checkpoint is kept, see `record_trajectories`; made once `ready` has returned.
        settings: of the fine-tuning.
        template: what is put around prompts.
        max_length: examples are cut to so many tokens.
        trained: train on so many random examples only.
        scored_before: give the losses under the initial model.
        processes: those that share the work.
        progress: told how far it is.
        ready: as for `record_trajectories`.
        estimated: told what it will cost.
        by_memory: give a pass as many tokens as fit into memory.
        skip_bad: as for `record_trajectories`.
        tokens_in: as for `record_trajectories`.

    Returns:
        The tokens of all examples, and their losses before the training if they are wanted.

    Raises:
        ConfigError: if the training is too short, or examples are too long for the model.
        DataError: if no example has a response token left.
    """
    settings = settings or FineTuningSettings()
    tokens, trained_on = _tokens(
        data,
        proxy,
        settings,
        template=template,
        max_length=max_length,
        trained=trained,
        skip_bad=skip_bad,
        tokens_in=tokens_in,
        processes=processes,
    )
    settings = _priced(proxy, tokens, trained_on, settings, 0, processes=processes, told=estimated, by_memory=by_memory)
    if ready is not None or not skip_bad:
        (ready or _warn_of_lost)(tokens.undefined)
    before = response_scores(proxy.model, tokens, processes=processes).loss if scored_before else None
    folder.mkdir(parents=True, exist_ok=True)
    fine_tune(
        proxy.model,
        trained_on,
        settings,
        checkpoint=folder / "checkpoint.safetensors",
        save_every=_SAVED,
        processes=processes,
        progress=progress,
    )
    return tokens, before


def _tokens(
    data: Instructions,
    proxy: LanguageModel,
    settings: FineTuningSettings,
    *,
    template: str,
    max_length: int,
    trained: int | None,
    skip_bad: bool,
    tokens_in: Path | None,
    processes: Ranks,
) -> tuple[TokenPairs, TokenPairs]:
    """All examples as tokens, and those that are trained on.

    Raises:
        ConfigError: if examples are too long for the model, or the training has one step only.
    """
    form = Template.named(template, proxy.tokenizer)
    tokens = tokenize(
        data,
        proxy.tokenizer,
        form,
        max_length=max_length,
        skip_bad=skip_bad,
        folder=tokens_in,
        processes=processes,
    )
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
    return tokens, trained_on


def _priced(
    proxy: LanguageModel,
    tokens: TokenPairs,
    trained_on: TokenPairs,
    settings: FineTuningSettings,
    points: int,
    *,
    processes: Ranks,
    told: Callable[[Estimate], None] | None,
    by_memory: bool,
) -> FineTuningSettings:
    """The settings, with as many tokens in a pass as fit if that is wanted; tells what it will cost."""
    if told is None and not by_memory:
        return settings
    cost = estimate(
        proxy.model, tokens, trained_on, settings, points=points, processes=processes.count, by_memory=by_memory
    )
    # All cut alike, so that a point has the same bits whatever the number of processes.
    settings = replace(settings, most_tokens=processes.broadcast(cost.most_tokens))
    if told is not None:
        told(replace(cost, most_tokens=settings.most_tokens))
    return settings


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
    if count is None and len(usable) == len(tokens):
        return tokens
    if count is None:
        return tokens.part(usable)
    if not 1 <= count <= len(usable):
        raise ConfigError(f"the proxy is to be trained on {count} examples and there are {len(usable)}")
    return tokens.part(np.sort(numpy_stream(seed, "trained on").choice(usable, count, replace=False)))
