"""What S2L's choice owes to its curves and its proxy, and how a subset does epoch by epoch, in the world of facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.finetuning import Trajectories, fine_tune
from holdfast.finetuning.language_models.fine_tuning import Progress
from holdfast.finetuning.language_models.models import gpt_neox
from holdfast.finetuning.selection.baselines import random_subset
from holdfast.finetuning.selection.s2l import s2l_select
from holdfast.papers.engine.pins import options
from holdfast.papers.engine.witness import tell
from holdfast.papers.s2l.cells import answer_accuracy, course, training_settings, untrained, world
from holdfast.papers.s2l.coverage_cells import covered, no_target
from holdfast.papers.s2l.rows import choose, record, tell_loss, tell_weights
from holdfast.papers.s2l.world import LONGEST, TOPICS, VOCABULARY, FactExamples
from holdfast.streams import derive_seed, numpy_stream

_POINTS = 12


def coverage_by_curves(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """What a subset covers by how many points its curves have, where they lie, and whose curves they are.

    Args:
        settings: ``examples``, ``steps`` of the proxy, ``budget``, ``k`` and ``start`` of k-means; ``points``, several
            numbers of them at equal strides; ``dense``, how many neighbouring ones; ``part``, the share of the examples
            that a proxy sees for as many epochs.
        seed: of everything.

    Returns:
        ``ROW/facts``, ``ROW/rare facts`` and ``ROW/evenness`` of ``random``; of ``N points``; of ``early points``,
        ``middle points`` and ``late points``; of the proxies ``on a part``, ``smaller``, ``larger`` and ``gpt-2``.
    """
    n, steps, train = settings["examples"], settings["steps"], world(seed, settings["examples"]).train
    whole = course("proxy", n, steps, seed).course.trajectories
    curves = {f"{points} points": whole.thinned(points) for points in settings["points"]}
    curves |= {f"{phase} points": whole.dense(settings["dense"], phase) for phase in ("early", "middle", "late")}
    curves |= {name: proxy(train, settings, seed) for name, proxy in _PROXIES.items()}
    how = {"k": settings["k"], "start": settings["start"], "seed": seed, "smallest": 1}
    subsets = {"random": random_subset(np.ones(n, np.bool_), settings["budget"], seed=seed)}
    for name, found in curves.items():
        chosen = s2l_select(found.losses, settings["budget"], **options(s2l_select, how))
        subsets[name] = chosen.positions
    metrics = {
        f"{row}/{what}": value
        for row, subset in subsets.items()
        for what, value in covered(train.facts, train.topics, subset).items()
    }
    for name, found in curves.items():
        tell(name, torch.from_numpy(found.losses))
    tell("covered by curves", metrics)
    return metrics


def _on_a_part(train: FactExamples, settings: Mapping[str, Any], seed: int) -> Trajectories:
    """The usual proxy, trained for as many epochs on a part; the losses of all are recorded."""
    n, share = settings["examples"], settings["part"]
    some = np.sort(numpy_stream(seed, "trained on").choice(n, round(share * n), replace=False))
    steps = max(_POINTS, round(share * settings["steps"]))
    return record(
        untrained("proxy", seed),
        train.tokens,
        training_settings("proxy", steps, seed),
        _POINTS,
        trained_on=train.tokens.part(some),
    )


def _other(layers: int, width: int) -> Callable[[FactExamples, Mapping[str, Any], int], Trajectories]:
    """A proxy of another size."""

    def curves(train: FactExamples, settings: Mapping[str, Any], seed: int) -> Trajectories:
        model = gpt_neox(VOCABULARY, layers=layers, width=width, heads=4, longest=LONGEST, seed=seed, end=0)
        return record(model, train.tokens, training_settings("proxy", settings["steps"], seed), _POINTS)

    return curves


def _gpt2(train: FactExamples, settings: Mapping[str, Any], seed: int) -> Trajectories:
    """A proxy of about the usual size and another architecture."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - an optional package

    sizes = {"vocab_size": VOCABULARY, "n_positions": LONGEST, "n_embd": 24, "n_layer": 2, "n_head": 4}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights of gpt-2"))
        model: nn.Module = GPT2LMHeadModel(config)
    return record(model, train.tokens, training_settings("proxy", settings["steps"], seed), _POINTS)


_PROXIES: Mapping[str, Callable[[FactExamples, Mapping[str, Any], int], Trajectories]] = {
    "on a part": _on_a_part,
    "smaller": _other(1, 12),
    "larger": _other(3, 64),
    "gpt-2": _gpt2,
}


def accuracy_by_epoch(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """How much a target knows after some epochs of its subset.

    Args:
        settings: ``method`` and ``budget``, as for `holdfast.papers.s2l.cells.train_on_subset`; ``examples``, ``steps``
            of the proxy, ``epochs`` after which the target is asked; the last one is where its training ends.
        seed: of everything.

    Returns:
        ``macro N``, the mean over topics of the accuracy in percent after N epochs.
    """
    data, n, epochs = world(seed, settings["examples"]), settings["examples"], settings["epochs"]
    chosen = choose(
        settings["method"],
        settings["budget"],
        sources=data.train.sources,
        undefined=data.train.tokens.undefined,
        proxy=lambda: course("proxy", n, settings["steps"], seed).course.trajectories,
        target=no_target,
        k=TOPICS,
        seed=seed,
    )
    tokens, model = data.train.tokens.part(chosen), untrained("target", seed)
    training = training_settings("target", None, seed, epochs=max(epochs))
    per_epoch = training.steps_for(len(tokens)) // max(epochs)
    metrics = dict[str, float]()

    def watch(progress: Progress) -> None:
        tell_loss(progress)
        epoch, rest = divmod(progress.done, per_epoch)
        if not rest and epoch in epochs:
            right = answer_accuracy(model, data.test)
            topics = np.array([right[data.test.topics == topic].mean() for topic in range(TOPICS)])
            metrics[f"macro {epoch}"] = 100 * float(topics.mean())

    fine_tune(model, tokens, training, progress=watch)
    tell_weights(model)
    return metrics
