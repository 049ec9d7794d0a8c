"""The random world of Ditto's analysis: clients whose true parameters are relatives, observed through Gaussian noise.

Ditto, Section 3.2 and Appendix B (https://arxiv.org/abs/2012.04221). A benign client has w_k = θ + N(0, τ²I), a
malicious one θ + N(0, τ_a²I), with a flat prior on θ; it sees y_k = X_k w_k + N(0, σ²I) with X_kᵀX_k = βI. Point
estimation is the case of one dimension and a column of ones, β = n, so both parts of the analysis share one class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.errors import ConfigError


@dataclass(frozen=True)
class PointEstimation:
    """What decides every expectation of the analysis. The names are the document's.

    Attributes:
        K: clients.
        sigma: standard deviation of a sample's noise.
        n: samples per client.
        tau: how far benign clients are from θ; 1/τ is their relatedness.
        K_a: malicious clients among them.
        tau_a: how far malicious clients are from θ. Definition 4 asks for τ_a ≥ τ, the formulas don't.
        d: parameters.
        beta: X_kᵀX_k = βI; n by default, which is point estimation for d = 1.
    """

    K: int
    sigma: float
    n: int
    tau: float
    K_a: int = 0
    tau_a: float | None = None
    d: int = 1
    beta: float | None = None

    def __post_init__(self) -> None:
        if self.K < 2 or not 0 <= self.K_a < self.K:
            raise ConfigError(
                f"there are {self.K} clients, {self.K_a} of them malicious; give at least 2 with one benign"
            )
        if self.n < 1 or self.d < 1:
            raise ConfigError(f"n is {self.n} and d is {self.d}; give at least 1 of each")
        if self.K_a and self.tau_a is None:
            raise ConfigError(f"there are {self.K_a} malicious clients and no tau_a; give how far they are from theta")
        if not (0 < self.sigma < math.inf and (self.beta is None or 0 < self.beta < math.inf)):
            raise ConfigError(f"sigma is {self.sigma} and beta is {self.beta}; give finite numbers above 0")
        if not (0 <= self.tau < math.inf and (self.tau_a is None or 0 <= self.tau_a < math.inf)):
            raise ConfigError(f"tau is {self.tau} and tau_a is {self.tau_a}; give finite numbers of at least 0")

    @property
    def K_b(self) -> int:  # noqa: N802
        """Benign clients."""
        return self.K - self.K_a

    @property
    def curvature(self) -> float:
        """The Hessian c = β/n of F_k = ‖X_k w − y_k‖²/(2n)."""
        return 1.0 if self.beta is None else self.beta / self.n

    @property
    def noise(self) -> float:
        """s² = σ²/β, the variance of each coordinate of a client's own estimate around its truth."""
        return self.sigma**2 / (self.n if self.beta is None else self.beta)

    @property
    def excess(self) -> float:
        """K_a(τ_a² − τ²), what malicious clients add to the variance of the sum of all parameters."""
        return self.K_a * (self.tau_a**2 - self.tau**2) if self.tau_a is not None else 0.0
