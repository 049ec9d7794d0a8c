"""Every aggregation rule by the name it has on the command line; names joined by ``+`` chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.federated.aggregation.base import Aggregator, PreStep, WithPreStep
from holdfast.lazy import LazyTable

AGGREGATORS: LazyTable[type[Aggregator]] = LazyTable(
    "aggregator",
    {
        "mean": "holdfast.federated.aggregation:Mean",
        "median": "holdfast.federated.aggregation:Median",
        "trimmed-mean": "holdfast.federated.aggregation:TrimmedMean",
        "geometric-median": "holdfast.federated.aggregation:GeometricMedian",
        "clipping": "holdfast.federated.aggregation:Clipping",
        "arc": "holdfast.federated.aggregation:AdaptiveClipping",
        "nnm": "holdfast.federated.aggregation:NearestNeighbourMixing",
        "bucketing": "holdfast.federated.aggregation:Bucketing",
        "momentum": "holdfast.federated.aggregation:ClientMomentum",
        "centred-clipping": "holdfast.federated.aggregation:CentredClipping",
        "krum": "holdfast.federated.aggregation:Krum",
        "multi-krum": "holdfast.federated.aggregation:MultiKrum",
        "bulyan": "holdfast.federated.aggregation:Bulyan",
        "k-norm": "holdfast.federated.aggregation:KNorm",
        "k-loss": "holdfast.federated.aggregation:KLoss",
        "fedmgda": "holdfast.federated.aggregation:FedMgda",
        "tilted-mean": "holdfast.federated.aggregation:TiltedMean",
        "q-fair": "holdfast.federated.aggregation:QFairMean",
    },
)


def aggregator_names(joined: str) -> list[str]:
    """The rules named by ``"clipping+krum"``, in order; an unknown one is answered with the nearest known."""
    names = [name.strip() for name in joined.split("+")]
    for name in names:
        AGGREGATORS.expect(name)
    return names


def build_aggregator(joined: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Aggregator:
    """The rule, or the chain of rules, named by `joined`.

    Args:
        joined: one name, or several joined by ``+``; all but the last make updates of updates.
        options: options per name.

    Returns:
        The rule.

    Example:
        >>> build_aggregator("clipping+multi-krum", {"multi-krum": {"keep": 3}})
        WithPreStep(first=Clipping(), then=MultiKrum(reference=False, keep=3))
    """
    chosen = options or {}
    *before, last = [AGGREGATORS[name](**chosen.get(name, {})) for name in aggregator_names(joined)]
    if sum(first.needs_clients for first in before) > 1:
        raise ConfigError(f"a step that remembers clients is named twice in {joined!r}; name it once")
    for first in reversed(before):
        if not isinstance(first, PreStep):
            raise ConfigError(f"{first.label} leaves one vector, so nothing can follow it in {joined!r}; put it last")
        last = WithPreStep(first, last)
    return last
