"""What S2L is compared with: other ways to choose as many examples, each a function of scores that a model gave.

Unlike S2L they need a model that has seen the data: the target itself at an early step or at the end of a training.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.apportionment import round_to_total
from holdfast.errors import ConfigError
from holdfast.finetuning.selection.balanced import balanced, quotas
from holdfast.primitives.facility_location import facility_location
from holdfast.streams import numpy_stream

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]


def random_subset(usable: Mask, budget: int, *, seed: int) -> Ints:
    """Examples at random, increasing positions."""
    return np.sort(numpy_stream(seed, "random subset").choice(_places(usable, budget), budget, replace=False))


def source_balanced_random(sources: Ints, usable: Mask, budget: int, *, seed: int) -> Ints:
    """Equal shares of sources, as S2L takes them, at random within each.

    What S2L gains beyond this is owed to trajectories, not to the shares.
    """
    _places(usable, budget)
    return balanced(np.where(usable, sources, -1), budget, seed=seed)


def longest(lengths: Ints, usable: Mask, budget: int) -> Ints:
    """The examples with the longest responses: what often does well for chat models (Zhao et al. 2024).

    The paper is https://arxiv.org/abs/2402.04833.

    Args:
        lengths: of what is learned, shape (n,).
        usable: examples that may be chosen, shape (n,).
        budget: how many.
    """
    return _lowest(-lengths.astype(np.float64), usable, budget)


def least_confidence(confidence: Floats, usable: Mask, budget: int) -> Ints:
    """The examples that a model is least sure of.

    Args:
        confidence: of each response, its mean token probability by default, shape (n,).
        usable: examples that may be chosen, shape (n,).
        budget: how many.
    """
    return _lowest(confidence, usable, budget)


def middle_perplexity(losses: Floats, usable: Mask, budget: int) -> Ints:
    """The examples whose perplexity, exp of the mean token loss, is nearest the median in rank."""
    places = _places(usable, budget)
    ranked = places[np.argsort(losses[places], kind="stable")]
    first = (len(ranked) - budget) // 2
    return np.sort(ranked[first : first + budget])


def high_learnability(before: Floats, after: Floats, usable: Mask, budget: int) -> Ints:
    """The examples whose loss a training lowered most.

    Args:
        before: losses under the pretrained model, shape (n,).
        after: losses under the reference, shape (n,).
        usable: examples that may be chosen, shape (n,).
        budget: how many.
    """
    return _lowest(after - before, usable, budget)


def facility_locations(
    states: NDArray[np.float32], sources: Ints, usable: Mask, budget: int, *, equal_sources: bool = False
) -> Ints:
    """Examples whose hidden states stand for all others', chosen greedily within each source.

    Args:
        states: shape (n, d).
        sources: of the examples, from 0.
        usable: examples that may be chosen, shape (n,).
        budget: how many.
        equal_sources: equal shares of sources, instead of shares by their size.
    """
    _places(usable, budget)
    sizes = np.bincount(sources[usable])
    shares = quotas(sizes, budget) if equal_sources else proportional(sizes, budget)
    chosen = list[Ints]()
    for source, share in enumerate(shares):
        members = np.flatnonzero(usable & (sources == source))
        if share:
            selection = facility_location(torch.from_numpy(states[members]), int(share), metric="cosine")
            chosen.append(members[selection.chosen.numpy()])
    return np.sort(np.concatenate(chosen))


def most_confident(confidence: Floats, usable: Mask, count: int) -> Ints:
    """The next examples of a curriculum, the surest first."""
    places = _places(usable, count)
    return places[np.argsort(-confidence[places], kind="stable")][:count]


def proportional(sizes: Ints, budget: int) -> Ints:
    """Shares by size, rounded so that they sum to the budget: the largest remainders are rounded up."""
    return round_to_total(sizes * (budget / sizes.sum()), budget)


def _lowest(scores: Floats, usable: Mask, budget: int) -> Ints:
    places = _places(usable, budget)
    return np.sort(places[np.argsort(scores[places], kind="stable")[:budget]])


def _places(usable: Mask, budget: int) -> Ints:
    places = np.flatnonzero(usable)
    if not 1 <= budget <= len(places):
        raise ConfigError(f"the budget is {budget}, and there are {len(places)} examples to choose from")
    return places
