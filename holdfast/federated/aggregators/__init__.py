"""How a server combines updates: pure functions of a matrix (clients, parameters), and rules with options."""

from holdfast.federated.aggregators.base import Aggregator, Chain, Mean, PreStep, mean, reported
from holdfast.federated.aggregators.coordinates import Median, TrimmedMean, coordinate_median, trimmed_mean
from holdfast.federated.aggregators.distances import squared_distances
from holdfast.federated.aggregators.fedmgda import FedMgda, min_norm_step, shortest_mixture
from holdfast.federated.aggregators.geometric import GeometricMedian, geometric_median
from holdfast.federated.aggregators.krum import Krum, MultiKrum, krum_scores, krum_select
from holdfast.federated.aggregators.losses import (
    KLoss,
    QFairMean,
    TiltedMean,
    q_fair_weights,
    tilted_risk,
    tilted_weights,
)
from holdfast.federated.aggregators.norms import Clipping, KNorm, clip_to_median
from holdfast.federated.aggregators.sums import update_norms, weighted_sum
from holdfast.federated.aggregators.table import AGGREGATORS, aggregator_names, build_aggregator

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "Chain",
    "Clipping",
    "FedMgda",
    "GeometricMedian",
    "KLoss",
    "KNorm",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "PreStep",
    "QFairMean",
    "TiltedMean",
    "TrimmedMean",
    "aggregator_names",
    "build_aggregator",
    "clip_to_median",
    "coordinate_median",
    "geometric_median",
    "krum_scores",
    "krum_select",
    "mean",
    "min_norm_step",
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
