"""The linear theory behind transferability: entanglement with spurious features, and what it costs elsewhere.

"Personalized Federated Learning with Spurious Features: An Adversarial Approach", Section 4, see
`holdfast.papers.personalization`.
"""

from holdfast.theory.personalization.linear import (
    TransferTerms,
    angle_between,
    angle_range,
    conditional_distance,
    deviation_bound,
    disparity,
    disparity_bound,
    entanglement,
    gradient_norm_bound,
    input_gradient_bound,
    input_gradients,
    local_disparity_bound,
    logistic_loss,
    safe_angle,
    spurious_angle,
    transfer_terms,
)

__all__ = [
    "TransferTerms",
    "angle_between",
    "angle_range",
    "conditional_distance",
    "deviation_bound",
    "disparity",
    "disparity_bound",
    "entanglement",
    "gradient_norm_bound",
    "input_gradient_bound",
    "input_gradients",
    "local_disparity_bound",
    "logistic_loss",
    "safe_angle",
    "spurious_angle",
    "transfer_terms",
]
