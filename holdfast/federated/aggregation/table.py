"""Every aggregation rule by the name it has on the command line; names joined by ``+`` chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.federated.aggregation.base import Aggregator, Mean, PreStep, WithPreStep
from holdfast.federated.aggregation.coordinates import Median, TrimmedMean
from holdfast.federated.aggregation.fedmgda import FedMgda
from holdfast.federated.aggregation.geometric import GeometricMedian
from holdfast.federated.aggregation.krum import Krum, MultiKrum
from holdfast.federated.aggregation.losses import KLoss, QFairMean, TiltedMean
from holdfast.federated.aggregation.norms import Clipping, KNorm

AGGREGATORS: dict[str, type[Aggregator]] = {
    rule.name: rule
    for rule in (
        Mean,
        Median,
        TrimmedMean,
        GeometricMedian,
        Clipping,
        Krum,
        MultiKrum,
        KNorm,
        KLoss,
        FedMgda,
        TiltedMean,
        QFairMean,
    )
}


def aggregator_names(joined: str) -> list[str]:
    """The rules named by ``"clipping+krum"``, in order; an unknown one is answered with the nearest known."""
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        if name not in AGGREGATORS:
            raise ConfigError(f"there is no aggregator {name!r}{nearest(name, AGGREGATORS)}")
    return names


def build_aggregator(joined: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Aggregator:
    """The rule, or the chain of rules, named by `joined`.

    Args:
        joined: one name, or several joined by ``+``; all but the last must leave the number of updates alone.
        options: options per name.

    Returns:
        The rule.

    Example:
        >>> build_aggregator("clipping+multi-krum", {"multi-krum": {"keep": 3}})
        WithPreStep(first=Clipping(), then=MultiKrum(reference=False, keep=3))
    """
    chosen = options or {}
    *before, last = [AGGREGATORS[name](**chosen.get(name, {})) for name in aggregator_names(joined)]
    for first in reversed(before):
        if not isinstance(first, PreStep):
            raise ConfigError(f"{first.label} leaves one vector, so nothing can follow it in {joined!r}; put it last")
        last = WithPreStep(first, last)
    return last
