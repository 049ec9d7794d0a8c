"""What theory says about Ditto, as functions to hold a federation against (Ditto, Section 3.2, Appendices B, D and E).

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML 2021),
https://arxiv.org/abs/2012.04221.

`setting` is the random world, `closed_form` its errors and best λ, `monte_carlo` the same by simulation, `estimators`
linear regression with any design, `proximal` the personal problem for any loss, `trajectory` exact rounds on
quadratics, `convergence` the bounds on the rate and `rates` a run that shows it.
"""

from holdfast.theory.ditto.closed_form import (
    Posterior,
    best_lambda,
    conditional_spread,
    coordinate_covariance,
    coordinate_error,
    device_variance,
    error,
    fairest_lambda,
    mixing,
    posterior,
    spread,
)
from holdfast.theory.ditto.convergence import Assumptions, distances, next_distance, rate_constant, step_size
from holdfast.theory.ditto.estimators import Bayes, bayes, global_model, least_squares, personalized
from holdfast.theory.ditto.monte_carlo import Simulated, simulate
from holdfast.theory.ditto.proximal import proximal_minimum
from holdfast.theory.ditto.rates import Distances, stochastic_ditto
from holdfast.theory.ditto.setting import PointEstimation
from holdfast.theory.ditto.trajectory import ditto_trajectory, fedavg_fixed_point

__all__ = [
    "Assumptions",
    "Bayes",
    "Distances",
    "PointEstimation",
    "Posterior",
    "Simulated",
    "bayes",
    "best_lambda",
    "conditional_spread",
    "coordinate_covariance",
    "coordinate_error",
    "device_variance",
    "distances",
    "ditto_trajectory",
    "error",
    "fairest_lambda",
    "fedavg_fixed_point",
    "global_model",
    "least_squares",
    "mixing",
    "next_distance",
    "personalized",
    "posterior",
    "proximal_minimum",
    "rate_constant",
    "simulate",
    "spread",
    "step_size",
    "stochastic_ditto",
]
