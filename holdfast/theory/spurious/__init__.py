"""What theory says about spurious features, as functions to hold training against: PDE's and SPARE's models.

PDE: `cubic` (the patch model in closed form), `recursions`, `tensor_power`, `regimes`, `momentum`, and `patch_study`
(its synthetic study). SPARE: `mixture` (its data), `two_layer` (its network), `early_phase` and `linear_optimum`.

PDE is https://arxiv.org/abs/2306.04949. SPARE is https://arxiv.org/abs/2305.18761, with the numbering of Chapter 5 of
https://escholarship.org/uc/item/0399v1qw.
"""

from holdfast.theory.spurious.cubic import (
    Filters,
    Gradient,
    GradientParts,
    PatchSample,
    Probes,
    feature_probes,
    gradient,
    gradient_parts,
    loss,
    scores,
    slopes,
)
from holdfast.theory.spurious.early_phase import (
    EarlyOutputs,
    early_gap,
    early_noise_bound,
    early_outputs,
    linear_surrogate,
    surrogate_features,
)
from holdfast.theory.spurious.linear_optimum import Shares, fitted_shares, optimal_shares
from holdfast.theory.spurious.mixture import Mixture, MixtureSample
from holdfast.theory.spurious.momentum import (
    BufferAlignment,
    HeavyBall,
    average_step,
    buffer_alignment,
    heavy_ball_rate,
    heavy_ball_step,
)
from holdfast.theory.spurious.patch_study import Reset, Schedule, train_on_patches
from holdfast.theory.spurious.recursions import (
    Growth,
    Projections,
    early_core_growth,
    early_spurious_growth,
    next_projections,
    projections,
)
from holdfast.theory.spurious.regimes import Feature, favoured_feature, first_feature, spurious_learning_time
from holdfast.theory.spurious.tensor_power import hitting_time, hitting_time_bound, tensor_power
from holdfast.theory.spurious.two_layer import ZETA, TwoLayer, Units

__all__ = [
    "ZETA",
    "BufferAlignment",
    "EarlyOutputs",
    "Feature",
    "Filters",
    "Gradient",
    "GradientParts",
    "Growth",
    "HeavyBall",
    "Mixture",
    "MixtureSample",
    "PatchSample",
    "Probes",
    "Projections",
    "Reset",
    "Schedule",
    "Shares",
    "TwoLayer",
    "Units",
    "average_step",
    "buffer_alignment",
    "early_core_growth",
    "early_gap",
    "early_noise_bound",
    "early_outputs",
    "early_spurious_growth",
    "favoured_feature",
    "feature_probes",
    "first_feature",
    "fitted_shares",
    "gradient",
    "gradient_parts",
    "heavy_ball_rate",
    "heavy_ball_step",
    "hitting_time",
    "hitting_time_bound",
    "linear_surrogate",
    "loss",
    "next_projections",
    "optimal_shares",
    "projections",
    "scores",
    "slopes",
    "spurious_learning_time",
    "surrogate_features",
    "tensor_power",
    "train_on_patches",
]
