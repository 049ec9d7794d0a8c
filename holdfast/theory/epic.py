"""How far training on what was kept can stay behind training on everything (Theorem 4.2.1), as functions to compute.

EPIC (https://proceedings.mlr.press/v162/yang22j.html), with the numbering of Chapter 4 of
https://escholarship.org/uc/item/0399v1qw.
"""

from __future__ import annotations

from holdfast.errors import ConfigError


def kept_descent_bound(step: int, start: float, *, rate: float, pl: float, error: float) -> float:
    """(1 - eta mu)^t L_0 + rho^2 / (2 mu): the loss of all after t steps on the gradient of what was kept.

    Holds for every beta-smooth loss with |grad L|^2 / 2 >= mu L and eta <= 1 / beta, because
    -<g, s> + |s|^2 / 2 = -|g|^2 / 2 + |g - s|^2 / 2 for the gradients g of all and s of what was kept.

    Args:
        step: t.
        start: L_0.
        rate: eta.
        pl: mu, of the PL* condition.
        error: rho, the largest |g - s| on the way.

    Raises:
        ConfigError: if the rate or mu makes no sense.
    """
    if not 0 < rate * pl <= 1:
        raise ConfigError(f"the rate is {rate} and mu {pl}; their product must be above 0 and at most 1")
    return (1 - rate * pl) ** step * start + error**2 / (2 * pl)


def printed_descent_bound(step: int, start: float, *, rate: float, pl: float, change: float, longest: float) -> float:
    """(1 - eta mu)^t L_0 - (rho^2 - 2 rho G) / (2 mu), as the document has it.

    It needs rho <= 2 G, and follows from `kept_descent_bound` where rho <= G.

    Args:
        step: t.
        start: L_0.
        rate: eta.
        pl: mu, of the PL* condition.
        change: rho, the largest change of the gradient's norm by dropping.
        longest: G, the largest norm of a gradient.

    Raises:
        ConfigError: if the change is more than twice the longest gradient.
    """
    if change > 2 * longest:
        raise ConfigError(f"the gradient changes by {change} and is {longest} at most; the bound needs half of that")
    return (1 - rate * pl) ** step * start - (change**2 - 2 * change * longest) / (2 * pl)
