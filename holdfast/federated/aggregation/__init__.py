"""How a server combines updates: pure functions of a matrix (clients, parameters), and rules with options."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.federated.aggregation.base import (
        Aggregator,
        Mean,
        Memory,
        PreStep,
        RoundFacts,
        WithPreStep,
        reported,
    )
    from holdfast.federated.aggregation.bulyan import Bulyan, bulyan_mean, bulyan_select
    from holdfast.federated.aggregation.centred import CentredClipping, centred_clipping
    from holdfast.federated.aggregation.coordinates import Median, TrimmedMean, coordinate_median, trimmed_mean
    from holdfast.federated.aggregation.distances import squared_distances
    from holdfast.federated.aggregation.fedmgda import FedMgda, min_norm_step, shortest_mixture
    from holdfast.federated.aggregation.geometric import GeometricMedian, geometric_median
    from holdfast.federated.aggregation.krum import Krum, MultiKrum, krum_scores, krum_select
    from holdfast.federated.aggregation.losses import (
        KLoss,
        QFairMean,
        TiltedMean,
        q_fair_weights,
        tilted_risk,
        tilted_weights,
    )
    from holdfast.federated.aggregation.mixing import (
        Bucketing,
        NearestNeighbourMixing,
        buckets,
        nearest_neighbour_mixing,
    )
    from holdfast.federated.aggregation.momentum import ClientMomentum
    from holdfast.federated.aggregation.norms import AdaptiveClipping, Clipping, KNorm, clip_longest, clip_to_median
    from holdfast.federated.aggregation.sums import mean, update_norms, weighted_sum
    from holdfast.federated.aggregation.table import AGGREGATORS, aggregator_names, build_aggregator
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "AGGREGATORS",
    "AdaptiveClipping",
    "Aggregator",
    "Bucketing",
    "Bulyan",
    "CentredClipping",
    "ClientMomentum",
    "Clipping",
    "FedMgda",
    "GeometricMedian",
    "KLoss",
    "KNorm",
    "Krum",
    "Mean",
    "Median",
    "Memory",
    "MultiKrum",
    "NearestNeighbourMixing",
    "PreStep",
    "QFairMean",
    "RoundFacts",
    "TiltedMean",
    "TrimmedMean",
    "WithPreStep",
    "aggregator_names",
    "buckets",
    "build_aggregator",
    "bulyan_mean",
    "bulyan_select",
    "centred_clipping",
    "clip_longest",
    "clip_to_median",
    "coordinate_median",
    "geometric_median",
    "krum_scores",
    "krum_select",
    "mean",
    "min_norm_step",
    "nearest_neighbour_mixing",
    "q_fair_weights",
    "reported",
    "shortest_mixture",
    "squared_distances",
    "tilted_risk",
    "tilted_weights",
    "trimmed_mean",
    "update_norms",
    "weighted_sum",
]
