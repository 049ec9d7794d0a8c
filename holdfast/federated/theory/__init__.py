"""What theory says about Ditto, as functions to hold a federation against (Ditto, Section 4 and Appendices B to E).

`setting` is the random world, `closed_form` its errors and best λ, `monte_carlo` the same by simulation, `estimators`
linear regression with any design, `proximal` the personal problem for any loss, `trajectory` exact rounds on
quadratics, `convergence` the bounds on the rate and `rates` a run that shows it.
"""

from holdfast.federated.theory.closed_form import (
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
from holdfast.federated.theory.convergence import Assumptions, distances, next_distance, rate_constant, step_size
from holdfast.federated.theory.estimators import Bayes, bayes, global_model, least_squares, personalized
from holdfast.federated.theory.monte_carlo import Simulated, simulate
from holdfast.federated.theory.proximal import proximal_minimum
from holdfast.federated.theory.rates import Distances, stochastic_ditto
from holdfast.federated.theory.setting import Setting
from holdfast.federated.theory.trajectory import ditto_trajectory, fedavg_fixed_point

__all__ = [
    "Assumptions",
    "Bayes",
    "Distances",
    "Posterior",
    "Setting",
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
