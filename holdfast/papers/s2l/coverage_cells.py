"""What S2L's subsets cover, in the world of facts: choices alone, so many seeds can be afforded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.finetuning.selection.analysis import evenness
from holdfast.finetuning.selection.baselines import random_subset
from holdfast.finetuning.selection.s2l import s2l_select
from holdfast.papers.engine.pins import options
from holdfast.papers.engine.witness import tell
from holdfast.papers.s2l.cells import course, world
from holdfast.papers.s2l.rows import Beginning, choose
from holdfast.papers.s2l.world import TAIL, TOPICS
from holdfast.primitives.lloyd_options import Start

_ROWS = ("full", "random", "source-balanced random", "s2l", "s2l by source")


def coverage_of_subsets(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Choose subsets and count what is in them; nothing is trained but the proxy.

    Args:
        settings: ``examples``, ``steps`` of the proxy and ``budget``.
        seed: of everything.

    Returns:
        For each row ``ROW/facts`` and ``ROW/rare facts``, those of the rare half of the topics, that the subset has at
        least once, and ``ROW/evenness`` of its topics.
    """
    n, train = settings["examples"], world(seed, settings["examples"]).train
    metrics = dict[str, float]()
    for row in _ROWS:
        chosen = choose(
            row,
            settings["budget"],
            sources=train.sources,
            undefined=train.tokens.undefined,
            proxy=lambda: course("proxy", n, settings["steps"], seed).course.trajectories,
            target=no_target,
            k=TOPICS,
            seed=seed,
        )
        metrics |= {f"{row}/{what}": value for what, value in covered(train.facts, train.topics, chosen).items()}
    tell("covered", metrics)
    return metrics


def coverage_by_start(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """What S2L's subsets cover by where k-means starts, the published start and ours, and by the number of clusters.

    Args:
        settings: as for `coverage_of_subsets`, and ``k``, several numbers of clusters.
        seed: of everything.

    Returns:
        ``START K/facts``, ``START K/rare facts`` and ``START K/evenness``, and the same of ``random``.
    """
    n, train = settings["examples"], world(seed, settings["examples"]).train
    curves = course("proxy", n, settings["steps"], seed).course.trajectories.losses
    subsets = {"random": random_subset(np.ones(n, np.bool_), settings["budget"], seed=seed)}
    for start in get_args(Start):
        for k in settings["k"]:
            given = {"k": k, "start": start, "seed": seed, "smallest": 1}
            subsets[f"{start} {k}"] = s2l_select(curves, settings["budget"], **options(s2l_select, given)).positions
    metrics = {
        f"{row}/{what}": value
        for row, chosen in subsets.items()
        for what, value in covered(train.facts, train.topics, chosen).items()
    }
    tell("covered by start", metrics)
    return metrics


def covered(facts: NDArray[np.int64], topics: NDArray[np.int64], chosen: NDArray[np.int64]) -> dict[str, float]:
    """Facts of a subset, those of the rare half of the topics, and how even its topics are."""
    rare = chosen[topics[chosen] >= TOPICS - TAIL]
    return {
        "facts": float(len(np.unique(facts[chosen]))),
        "rare facts": float(len(np.unique(facts[rare]))),
        "evenness": evenness(topics[chosen], TOPICS),
    }


def no_target() -> Beginning:
    """For rows that choose without a target."""
    raise AssertionError("these rows choose without a target")
